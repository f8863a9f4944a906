// An image is refused, or every object in it can be read, and an index of these is the same again.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "headrace/dataset/object_index.h"

using namespace headrace;
using fuzz::check;

namespace {

using Index = std::shared_ptr<const ObjectIndex>;

Result<Index> open(std::span<const std::byte> image) {
  return ObjectIndex::open(SharedBytes::copy_of(image).value());
}

// The sums that a writer would have put there: else hardly an input gets past them.
std::vector<std::byte> with_sums(std::span<const std::byte> image) {
  std::vector<std::byte> out(image.begin(), image.end());
  constexpr size_t kSumAt = 12, kSizeAt = 16;
  if (out.size() < kSizeAt + sizeof(uint64_t)) return out;
  const uint64_t size = out.size();
  std::memcpy(out.data() + kSizeAt, &size, sizeof(size));
  const uint32_t sum = Crc32c().extended(std::span(out).subspan(kSizeAt)).value();
  std::memcpy(out.data() + kSumAt, &sum, sizeof(sum));
  return out;
}

Index built(const std::vector<ObjectInfo>& objects, const std::string& store_url,
            const std::string& prefix) {
  ObjectIndexBuilder all, part;
  all.set_source(store_url, prefix);
  for (size_t i = 0; i < objects.size(); ++i) {
    (i % 3 == 2 ? part : all).add(objects[i]);
    if (i % 3 == 2) all.append(std::move(part));
  }
  return all.build().value();
}

void check_same(const ObjectIndex& index, const std::vector<ObjectInfo>& objects) {
  check(index.size() == objects.size());
  std::string name, generation;
  uint64_t total_bytes = 0;
  for (size_t i = 0; i < objects.size(); ++i) {
    check(index.info(i) == objects[i]);
    name.clear();
    index.append_name(i, name);
    generation.clear();
    index.append_generation(i, generation);
    check(name == objects[i].name && generation == objects[i].generation);
    total_bytes += index.size_bytes(i);
  }
  check(total_bytes == index.total_size_bytes());
  if (const auto common = index.common_size_bytes()) {
    check(*common * index.size() == total_bytes);
  }
}

void check_image(std::span<const std::byte> image, fuzz::Choices& choices) {
  const Result<Index> index = open(image);
  if (!index) {
    check(index.error().code() == Code::kCorrupt);
    return;
  }
  // A few bytes can stand for many objects that are all alike.
  constexpr size_t kMostObjects = 500;
  if ((*index)->size() > kMostObjects) {
    check(!(*index)->info((*index)->size() - 1).name.empty());
    return;
  }
  std::vector<ObjectInfo> objects;
  for (size_t i = 0; i < (*index)->size(); ++i) objects.push_back((*index)->info(i));
  check_same(**index, objects);
  // What was made by hand may be written in other ways than ours; from then on it is one.
  const Index again = built(objects, (*index)->store_url(), (*index)->prefix());
  check_same(*again, objects);
  check((*index)->fingerprint() == again->fingerprint());
  const auto bytes = again->image().bytes();
  const Index reopened = open(bytes).value();
  check_same(*reopened, objects);
  check(std::ranges::equal(reopened->image().bytes(), bytes));
  // No beginning of an image is an image, and no image with a bit changed.
  check(!open(bytes.first(choices() % bytes.size())).has_value());
  std::vector<std::byte> flipped(bytes.begin(), bytes.end());
  flipped[choices() % flipped.size()] ^= static_cast<std::byte>(1 << choices() % 8);
  check(!open(flipped).has_value());
}

// Objects whose fields are pieces of the input.
void check_objects(std::string_view text, fuzz::Choices& choices) {
  const auto piece = [&](size_t most) {
    const std::string_view out =
        text.substr(0, std::min<size_t>(choices() % (most + 1), text.size()));
    text.remove_prefix(out.size());
    return std::string(out);
  };
  std::vector<ObjectInfo> objects;
  while (!text.empty()) {
    ObjectInfo object;
    object.name = "n" + piece(20);
    object.size_bytes = choices() >> choices() % 32;
    object.generation = choices() % 2 == 0 ? std::to_string(choices()) : piece(6);
    if (choices() % 3 != 0) object.crc32c = Crc32c(choices());
    object.content_type = piece(choices() % 2);
    object.updated += std::chrono::nanoseconds(choices());
    object.metageneration = choices() >> choices() % 32;
    objects.push_back(std::move(object));
  }
  const Index index = built(objects, "gs://bucket/", piece(3));
  check_same(*index, objects);
  check_same(*open(index->image().bytes()).value(), objects);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = fuzz::as_text(data, size);
  fuzz::Choices choices(text);
  check_image(fuzz::as_bytes(text), choices);
  check_image(with_sums(fuzz::as_bytes(text)), choices);
  check_objects(text, choices);
  return 0;
}
