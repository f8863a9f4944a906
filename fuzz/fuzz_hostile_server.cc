// The client against a server that says what the input tells it to say: it ends every operation, by
// itself; touches no memory but its own; hands out no byte that did not come; and passes nothing
// off as verified, stored or listed that is not. The input is a script: hostile_server.h.
#include <simdjson.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <source_location>
#include <string>
#include <vector>

#include "fuzz/check.h"
#include "fuzz/hostile_server.h"
#include "headrace/engine.h"
#include "headrace/store/listing/listing.h"
#include "headrace/store/object_writer.h"

using namespace headrace;
using fuzz::check;
using fuzz::HostileServer;
using fuzz::Script;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

constexpr uint64_t kBudgetBytes = 2 * kMiB;
constexpr milliseconds kTick{1};
constexpr std::chrono::seconds kHang{8};
constexpr milliseconds kLongestTick{20};
const MayBlock kMayBlock = MayBlock::on_this_thread();

// Blocks of the pool that belong to somebody else while the client works, in several sizes, and
// freed ones between them.
class Neighbours {
 public:
  explicit Neighbours(BlockPool& pool) {
    std::vector<Block> freed;
    for (const uint64_t size : {512u, 2048u, 8192u}) {
      for (int i = 0; i < 4; ++i) {
        Block block = pool.allocate(size);
        std::ranges::fill(block.bytes(), static_cast<std::byte>(HostileServer::kNeverSent));
        (i % 2 == 0 ? blocks_ : freed).push_back(std::move(block));
      }
    }
  }
  void check_untouched() const {
    for (const Block& block : blocks_) {
      check(std::ranges::all_of(block.bytes(), [](std::byte byte) {
        return byte == static_cast<std::byte>(HostileServer::kNeverSent);
      }));
    }
  }

 private:
  std::vector<Block> blocks_;
};

std::string some_bytes(size_t size, uint8_t seed) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) {
    // Neither 0 nor 0xEE, which are never sent.
    bytes[i] = static_cast<char>(1 + (i * 7 + i / 199 + seed) % 200);
  }
  return bytes;
}

class Story {
 public:
  Story(HostileServer& server, Script& script) : server_(server), script_(script) {}

  void tell() {
    const uint8_t what = script_.byte();
    settings_ = script_.byte();
    for (int i = 0; i < 3 + settings_ % 2; ++i) {
      // The first may be so large that it is read by several ranges.
      const size_t size = script_.short_number() % 12'000 * (i == 0 ? 16 : 1);
      server_.put(name_of(i), some_bytes(size, static_cast<uint8_t>(i)));
    }
    Engine engine({.io_threads = 1 + (settings_ >> 2 & 1u),
                   .file_threads = 1,
                   .memory_budget_bytes = kBudgetBytes});
    {
      const Neighbours neighbours(engine.pool());
      const Result<Url> url = parse_url("gs://bucket");
      store_ = engine.open(*url, options()).value();
      switch (what % 12) {
        case 0:
        case 1:
        case 2:
        case 3: read(engine); break;
        case 4: list(); break;
        case 5: write(); break;
        case 6: stream(UploadMethod::kParts); break;
        case 7: stream(UploadMethod::kMultipart); break;
        case 8: stream(UploadMethod::kResumable); break;
        case 9: compose(); break;
        case 10: change(); break;
        default: look();
      }
      neighbours.check_untouched();
      // What runs on: temporaries that are being removed, pieces of what has failed.
      serve_until([&] { return engine.metrics().in_flight == 0; });
      store_.reset();
    }
    serve_until([&] {
      const MemoryUse use = engine.pool().use();
      return use.live_bytes == 0 && use.in_flight_bytes == 0 && engine.pool().reserved_bytes() == 0;
    });
  }

 private:
  static std::string name_of(int i) { return cat("o/", i); }

  StoreOptions options() {
    StoreOptions options;
    options.endpoint = server_.url();
    options.retry = {.max_attempts = 3,
                     .initial_backoff = milliseconds(1),
                     .max_backoff = milliseconds(2),
                     .budget_tokens = 20};
    options.timeout = {.connect = milliseconds(1000),
                       .first_byte = milliseconds(60),
                       .stall = milliseconds(60),
                       .total = milliseconds(250)};
    options.range_threshold_bytes = kMinRangeBytes + 2048;
    options.range_bytes = kMinRangeBytes;
    options.max_in_flight = 16;
    options.initial_in_flight = 4;
    options.verify = (settings_ & 8) == 0 ? Verify::kAll : Verify::kNone;
    options.on_change = (settings_ & 16) != 0 ? OnChange::kReread : OnChange::kError;
    options.content_encoding =
        (settings_ & 32) != 0 ? ContentEncoding::kDecompress : ContentEncoding::kStored;
    options.compose_small_objects = (settings_ & 0xC0) == 0xC0;
    options.compose.max_size_bytes = 8 * kKiB;
    options.compose.pause = milliseconds(1);
    options.write_limits.min_multipart_part_bytes = 1;
    return options;
  }

  // Plays the server until what must come by itself has come; `where` says what never came. A tick
  // that took long counts as kLongestTick: while this process was stopped, or had no processor,
  // the client's time-outs, which would have ended the wait, stood as still as this did.
  template <class Done>
  void serve_until(Done done, std::source_location where = std::source_location::current()) {
    steady_clock::duration waited{0};
    auto tick_began = steady_clock::now();
    while (!done()) {
      server_.serve(kTick);
      const auto now = steady_clock::now();
      waited += std::min<steady_clock::duration>(now - tick_began, kLongestTick);
      check(waited < kHang, where);
      tick_began = now;
    }
  }

  template <class T>
  Result<T> take(const std::shared_ptr<Pending<T>>& pending,
                 std::source_location where = std::source_location::current()) {
    serve_until([&] { return pending->wait_until(steady_clock::now(), kMayBlock); }, where);
    return pending->take(kMayBlock);
  }

  // ── Reading ────────────────────────────────────────────────────────────────────────────────

  struct Target {
    std::string name, generation;
    ReadTarget read;
    std::unique_ptr<std::byte[]> memory;  // of exactly the size that is announced
    std::vector<std::unique_ptr<std::byte[]>> scattered = {};  // the same of each place
    std::vector<Place> places = {};
  };

  Target target() {
    Target target;
    const uint8_t what = script_.byte();
    const uint8_t number = script_.byte();
    target.name = name_of(number % 5);
    const auto found = server_.objects().find(target.name);
    const bool exists = found != server_.objects().end();
    const uint64_t size = exists ? found->second.bytes.size() : 100;
    if ((what & 1) != 0) target.read.size_bytes = (what & 0x80) != 0 ? script_.odd_number() : size;
    if ((what & 2) != 0) target.generation = std::to_string(exists ? found->second.generation : 7);
    if ((what & 4) != 0 && exists) {
      target.read.checksum = Crc32c().extended(fuzz::as_bytes(found->second.bytes));
    }
    if ((what & 8) != 0) {
      const uint64_t begin = script_.odd_number();
      const uint64_t length = script_.odd_number();
      target.read.range = ByteRange{begin, begin + std::min(length, UINT64_MAX - begin)};
      if ((what & 16) != 0) target.read.range->end = UINT64_MAX;
    }
    if ((number & 128) != 0) {
      scatter(target);
    } else if ((what & 32) != 0) {
      const ByteRange range = target.read.range.value_or(ByteRange{0, UINT64_MAX});
      const uint64_t end = std::min(range.end, size);
      const size_t wanted = (what & 64) != 0    ? script_.short_number()
                            : end > range.begin ? static_cast<size_t>(end - range.begin)
                                                : 0;
      target.memory = std::make_unique<std::byte[]>(wanted);
      target.read.into = {target.memory.get(), wanted};
      target.read.has_into = true;
      std::ranges::fill(target.read.into, static_cast<std::byte>(HostileServer::kNeverSent));
    }
    return target;
  }

  void scatter(Target& target) {
    uint64_t position = script_.byte();
    for (int left = 1 + script_.byte() % 8; left > 0; --left) {
      // Some go straight to their place, most are copied.
      const uint8_t size = script_.byte();
      const size_t wanted = 1 + size + (size % 8 == 0 ? PlaceFiller::kDirectBytes : 0);
      target.scattered.push_back(std::make_unique<std::byte[]>(wanted));
      target.places.push_back({position, {target.scattered.back().get(), wanted}});
      std::ranges::fill(target.places.back().into,
                        static_cast<std::byte>(HostileServer::kNeverSent));
      position += wanted + (script_.byte() % 2) * script_.byte();
    }
    target.read.range = range_of(target.places).value();
    target.read.places = target.places;
    target.read.wanted_sum = ChecksumKind::kCrc32c;
  }

  void read(Engine& engine) {
    const int count = 1 + script_.byte() % 6;
    std::vector<Target> targets;
    for (int i = 0; i < count; ++i) targets.push_back(target());
    const auto batch = ReadBatch::create(targets.size());
    for (Target& target : targets) {
      target.read.name = target.name;
      target.read.generation = target.generation;
      batch->add(target.read);
    }
    server_.begin_lies(script_);
    store_->read(batch);
    if ((settings_ & 2) != 0) {
      server_.serve(kTick);
      batch->cancel();
    }
    batch->want();
    serve_until([&] { return batch->wait_until(steady_clock::now(), kMayBlock); });
    check(batch->done());
    for (size_t i = 0; i < targets.size(); ++i) check_read(batch->slot(i), targets[i]);
    // The engine's own count: never more than what one object may take beyond the budget.
    check(engine.pool().use().peak_live_bytes <= 3 * kBudgetBytes);
  }

  void check_read(const ReadSlot& slot, const Target& target) const {
    if (slot.error) {
      check(!slot.error->message().empty() && !slot.error->url().empty());
      return;
    }
    if (slot.into.scatter()) return check_scattered(slot, target);
    if (slot.into.is_callers()) {
      check(slot.into.data() == target.read.into.data() &&
            slot.into.size() == target.read.into.size());
    }
    const std::span<const std::byte> bytes = slot.into;
    const bool plain = slot.gzip && (settings_ & 32) != 0;  // decompressed here
    if (plain) return;
    check(bytes.size() == slot.range.size_bytes());
    const ByteRange asked = slot.asked_range();
    check(slot.range.begin == asked.begin && slot.range.end <= asked.end);
    check(std::ranges::none_of(bytes, is_nothing_sent));
    if (slot.is_range()) return;
    check(bytes.size() == slot.object_bytes);
    if ((settings_ & 8) == 0 && !slot.expected.empty()) {
      check(sum_of(slot.expected.kind(), bytes) == slot.expected);
    }
    // What was listed is what came, unless it was read anew.
    if ((settings_ & 16) != 0) return;
    if (slot.restarts == 0 && target.read.size_bytes != kUnknownSize) {
      check(bytes.size() == target.read.size_bytes);
    }
    if (!target.generation.empty() && !slot.found_generation.empty()) {
      check(slot.found_generation.view() == target.generation);
    }
  }

  static void check_scattered(const ReadSlot& slot, const Target& target) {
    check(slot.into.scatter()->sums.size() == target.places.size());
    for (size_t i = 0; i < target.places.size(); ++i) {
      const std::span<const std::byte> bytes = target.places[i].into;
      check(slot.into.scatter()->sums[i] == Checksum(Crc32c().extended(bytes)));
      check(std::ranges::none_of(bytes, is_nothing_sent));
    }
    check(slot.range == slot.asked);
  }

  static bool is_nothing_sent(std::byte byte) {
    return byte == std::byte{0} || byte == static_cast<std::byte>(HostileServer::kNeverSent);
  }

  // ── Listing ────────────────────────────────────────────────────────────────────────────────

  void list() {
    const int count = script_.byte() % 64;
    for (int i = 0; i < count; ++i) server_.put(cat("n/", i % 7, "/", i * 37), "x");
    const std::string prefix = (settings_ & 1) != 0 ? "n/" : "";
    server_.begin_lies(script_);
    const auto listing =
        Listing::start(store_, {.prefix = prefix},
                       {.max_pages_in_flight = settings_ >> 1 & 3u, .eager = (settings_ & 2) != 0});
    std::string last;
    size_t names = 0;
    while (true) {
      serve_until([&] { return listing->wait_until(steady_clock::now(), kMayBlock); });
      const Result<std::optional<ColumnPage>> page = listing->take(kMayBlock);
      if (!page) {
        check(!page.error().message().empty());
        break;
      }
      if (!*page) break;
      check(!(*page)->empty());
      for (size_t i = 0; i < (*page)->size(); ++i) {
        const std::string_view name = (*page)->name(i);
        check(name.starts_with(prefix) && (names == 0 || last < name));
        last = name;
        if (++names > 5000) return;  // a server can make up names for ever
      }
    }
    listing->cancel();
  }

  // ── Writing ────────────────────────────────────────────────────────────────────────────────

  Precondition precondition() {
    switch (script_.byte() % 4) {
      case 1: return {.generation = ""};
      case 2: return {.generation = "1000"};
      case 3: return {.generation = script_.text()};
      default: return {};
    }
  }

  static void check_written(const Result<ObjectInfo>& info, uint64_t size, Crc32c sum) {
    if (!info) {
      check(!info.error().message().empty());
      return;
    }
    check(info->size_bytes == size && (!info->crc32c() || *info->crc32c() == sum));
  }

  void write() {
    const std::string bytes = some_bytes(script_.short_number() % 5000, 9);
    const WriteRequest request{.name = "new", .precondition = precondition()};
    server_.begin_lies(script_);
    const auto pending = store_->write(request, fuzz::as_bytes(bytes));
    if ((settings_ & 2) != 0) {
      server_.serve(kTick);
      pending->cancel();
    }
    check_written(take(pending), bytes.size(), Crc32c().extended(fuzz::as_bytes(bytes)));
  }

  void stream(UploadMethod method) {
    const uint64_t part_bytes = method == UploadMethod::kResumable ? 256 * kKiB : 1024;
    WriterOptions options{.object = {.name = "new", .precondition = precondition()},
                          .method = method,
                          .part_bytes = part_bytes,
                          .max_parts_in_flight = 1 + script_.byte() % 4u};
    const uint64_t size = part_bytes * (script_.byte() % 6) + script_.byte() % 5;
    const std::string bytes = some_bytes(size, 3);
    server_.begin_lies(script_);
    const Result<std::shared_ptr<ObjectWriter>> writer = store_->open_writer(options);
    if (!writer) return;
    std::span<const std::byte> left = fuzz::as_bytes(bytes);
    bool failed = false;
    while (!left.empty() && !failed) {
      serve_until([&] {
        const Result<size_t> taken = (*writer)->append_some(left, nullptr);
        failed = !taken;
        if (taken) left = left.subspan(*taken);
        return failed || (taken && *taken > 0);
      });
    }
    if ((settings_ & 2) != 0) (*writer)->abort();
    (*writer)->begin_close();
    const auto now = [] { return steady_clock::now(); };
    serve_until([&] { return (*writer)->wait_until_settled(now(), kMayBlock); });
    const Result<ObjectInfo> info = (*writer)->outcome();
    if (failed) check(!info);
    check_written(info, size, Crc32c().extended(fuzz::as_bytes(bytes)));
    serve_until([&] { return (*writer)->wait_cleaned(now(), kMayBlock); });
  }

  void compose() {
    ComposeRequest request{.name = "new", .precondition = precondition()};
    uint64_t size = 0;
    Crc32c sum;
    for (const auto& [name, object] : server_.objects()) {
      const Crc32c part = Crc32c().extended(fuzz::as_bytes(object.bytes));
      request.sources.push_back({.name = name,
                                 .generation = std::to_string(object.generation),
                                 .size_bytes = object.bytes.size(),
                                 .crc32c = part});
      sum = sum.joined(part, object.bytes.size());
      size += object.bytes.size();
    }
    server_.begin_lies(script_);
    check_written(take(store_->compose(std::move(request))), size, sum);
  }

  void change() {
    const Precondition condition = precondition();
    const uint8_t which = script_.byte();
    server_.begin_lies(script_);
    if (which % 2 == 0) {
      static_cast<void>(take(store_->remove("o/0", condition)));
    } else {
      const Result<ObjectInfo> copied =
          take(store_->copy({.source_name = "o/0", .name = "new", .precondition = condition}));
      if (copied) check(copied->name.size() < 100'000);
    }
  }

  void look() {
    const uint8_t which = script_.byte();
    server_.begin_lies(script_);
    switch (which % 4) {
      case 0: static_cast<void>(take(store_->stat("o/0"))); break;
      case 1: static_cast<void>(take(store_->list({.delimiter = "/"}))); break;
      case 2: static_cast<void>(take(store_->list_multipart("", "", ""))); break;
      default: static_cast<void>(take(store_->abort_multipart("o/0", "u")));
    }
  }

  HostileServer& server_;
  Script& script_;
  uint8_t settings_ = 0;
  std::shared_ptr<ObjectStore> store_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static HostileServer server;
  Script script(std::span(data, size));
  server.begin();
  Story(server, script).tell();
  server.end();
  return 0;
}
