#include "ais/archives.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <regex>

#include "ais/ais.h"
#include "digest.h"
#include "text.h"

namespace faultserver::ais {
namespace {

constexpr uint64_t kBlockBytes = 512;

bool is_tar(std::string_view name) { return name.ends_with(".tar"); }
bool is_tgz(std::string_view name) { return name.ends_with(".tgz") || name.ends_with(".tar.gz"); }
bool is_zip(std::string_view name) { return name.ends_with(".zip"); }

// ── tar

uint64_t padding(uint64_t size_bytes) {
  return (kBlockBytes - size_bytes % kBlockBytes) % kBlockBytes;
}

std::string_view until_zero(std::string_view field) { return field.substr(0, field.find('\0')); }

uint64_t octal(std::string_view field) {
  uint64_t value = 0;
  for (const char c : trim(until_zero(field))) {
    if (c < '0' || c > '7') return 0;
    value = value * 8 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

// The value of `key` in the records of a pax header, "LENGTH KEY=VALUE\n" each.
std::optional<std::string> pax_value(std::string_view records, std::string_view key) {
  std::optional<std::string> found;
  while (!records.empty()) {
    const size_t space = records.find(' ');
    if (space == std::string_view::npos) break;
    const uint64_t length = parse_u64(records.substr(0, space)).value_or(0);
    if (length <= space + 1 || length > records.size()) break;
    const std::string_view record = records.substr(space + 1, length - space - 2);
    const size_t equals = record.find('=');
    if (record.substr(0, equals) == key && equals != std::string_view::npos) {
      found = record.substr(equals + 1);
    }
    records.remove_prefix(length);
  }
  return found;
}

std::vector<Member> tar_members(const Body& whole) {
  const std::string bytes = whole.copy();
  const std::string_view all = bytes;
  std::vector<Member> out;
  std::string long_name;
  for (uint64_t at = 0; at + kBlockBytes <= all.size();) {
    const std::string_view header = all.substr(at, kBlockBytes);
    if (header.find_first_not_of('\0') == std::string_view::npos) break;
    const uint64_t size = octal(header.substr(124, 12));
    const char kind = header[156];
    at += kBlockBytes;
    if (size > all.size() - at) return out;
    const std::string_view content = all.substr(at, size);
    if (kind == 'x') {
      if (std::optional<std::string> name = pax_value(content, "path")) long_name = *name;
    } else if (kind == 'L') {
      long_name = until_zero(content);
    } else if (kind == '0' || kind == '\0') {
      std::string name(until_zero(header.substr(0, 100)));
      const std::string_view prefix = until_zero(header.substr(345, 155));
      if (header.substr(257, 5) == "ustar" && !prefix.empty() && header[263] == '0') {
        name = std::string(prefix) + "/" + name;
      }
      if (!long_name.empty()) name = std::exchange(long_name, {});
      out.push_back({.name = std::move(name), .body = whole.slice(at, at + size)});
    } else {
      long_name.clear();
    }
    at += size + padding(size);
  }
  return out;
}

void put_octal(std::string& header, size_t at, size_t width, uint64_t value) {
  for (size_t i = at + width - 1; i-- > at; value /= 8) {
    header[i] = static_cast<char>('0' + value % 8);
  }
}

struct TarHeader {
  std::string name{}, prefix{};
  uint64_t size_bytes = 0, modified_s = 0;
  char kind = '0';
};

std::string header_block(const TarHeader& told) {
  std::string header(kBlockBytes, '\0');
  told.name.copy(header.data(), 100);
  const bool is_file = told.kind == '0';
  put_octal(header, 100, 8, is_file ? 0644 : 0);
  put_octal(header, 108, 8, 0);
  put_octal(header, 116, 8, 0);
  put_octal(header, 124, 12, told.size_bytes);
  put_octal(header, 136, 12, told.modified_s);
  header[156] = told.kind;
  header.replace(257, 8, std::string("ustar\00000", 8));
  if (is_file) {
    put_octal(header, 329, 8, 0);
    put_octal(header, 337, 8, 0);
  }
  told.prefix.copy(header.data() + 345, 155);
  header.replace(148, 8, 8, ' ');
  uint64_t sum = 0;
  for (const char c : header) sum += static_cast<uint8_t>(c);
  put_octal(header, 148, 7, sum);
  header[154] = '\0';
  return header;
}

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

std::string only_ascii(std::string_view text) {
  std::string out;
  std::ranges::copy_if(text, std::back_inserter(out),
                       [](char c) { return static_cast<uint8_t>(c) < 0x80; });
  return out;
}

// Where a long name is cut in two for ustar; 0: it cannot be.
size_t ustar_split(std::string_view name) {
  constexpr size_t kNameBytes = 100, kPrefixBytes = 155;
  std::string_view head = name.substr(0, kPrefixBytes + 1);
  if (head.size() == name.size() && head.ends_with('/')) head.remove_suffix(1);
  const size_t slash = head.rfind('/');
  if (slash == std::string_view::npos || slash == 0) return 0;
  const size_t rest = name.size() - slash - 1;
  return rest == 0 || rest > kNameBytes || slash > kPrefixBytes ? 0 : slash;
}

// The length counts its own digits.
std::string pax_record(std::string_view key, std::string_view value) {
  const size_t fixed = key.size() + value.size() + 3;
  size_t length = fixed + std::to_string(fixed).size();
  length = fixed + std::to_string(length).size();
  return std::to_string(length) + " " + std::string(key) + "=" + std::string(value) + "\n";
}

// ── zip

template <typename Word>
Word little(std::string_view bytes, size_t at) {
  Word word{};
  if (at + sizeof word <= bytes.size()) std::memcpy(&word, bytes.data() + at, sizeof word);
  return word;
}

std::string inflated(std::string_view bytes, uint64_t size_bytes) {
  std::string out(size_bytes, '\0');
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return {};
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  const int result = inflate(&stream, Z_FINISH);
  inflateEnd(&stream);
  return result == Z_STREAM_END ? out : std::string();
}

std::vector<Member> zip_members(const Body& whole) {
  const std::string bytes = whole.copy();
  const std::string_view all = bytes;
  std::vector<Member> out;
  const size_t end = all.rfind(std::string_view("PK\x05\x06"));
  if (end == std::string_view::npos) return out;
  size_t at = little<uint32_t>(all, end + 16);
  for (uint16_t left = little<uint16_t>(all, end + 10); left > 0; --left) {
    if (all.substr(at, 4) != "PK\x01\x02") break;
    const auto method = little<uint16_t>(all, at + 10);
    const auto packed = little<uint32_t>(all, at + 20);
    const auto size = little<uint32_t>(all, at + 24);
    const auto name_size = little<uint16_t>(all, at + 28);
    const size_t local = little<uint32_t>(all, at + 42);
    std::string name(all.substr(at + 46, name_size));
    at += size_t{46} + name_size + little<uint16_t>(all, at + 30) + little<uint16_t>(all, at + 32);
    const size_t begin =
        local + 30 + little<uint16_t>(all, local + 26) + little<uint16_t>(all, local + 28);
    if (begin + packed > all.size() || name.ends_with('/')) continue;
    if (method == 0) {
      out.push_back({.name = std::move(name), .body = whole.slice(begin, begin + size)});
    } else {
      out.push_back(
          {.name = std::move(name), .body = Body(inflated(all.substr(begin, packed), size))});
    }
  }
  return out;
}

void put_little(std::string& out, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
}

}  // namespace

bool is_archive(std::string_view name) { return is_tar(name) || is_tgz(name) || is_zip(name); }

std::vector<Member> members_of(const Object& object) {
  if (is_tar(object.name)) return tar_members(object.body);
  if (is_tgz(object.name)) {
    std::optional<std::string> bytes = gunzip(object.body.copy());
    return bytes ? tar_members(Body(std::move(*bytes))) : std::vector<Member>();
  }
  if (is_zip(object.name)) return zip_members(object.body);
  return {};
}

void append_tar_member(std::vector<Body>& out, const std::string& name, const Body& content,
                       int64_t modified_us) {
  TarHeader header{.size_bytes = content.size_bytes(),
                   .modified_s = static_cast<uint64_t>(modified_us / 1'000'000)};
  const bool fits = is_ascii(name) && name.size() <= 100;
  const size_t split_at = is_ascii(name) && !fits ? ustar_split(name) : 0;
  if (fits) {
    header.name = name;
  } else if (split_at > 0) {
    header.name = name.substr(split_at + 1);
    header.prefix = name.substr(0, split_at);
  } else {
    const std::string record = pax_record("path", name);
    const size_t slash = name.rfind('/');
    const std::string folder = slash == std::string::npos ? "" : name.substr(0, slash + 1);
    const std::string last = slash == std::string::npos ? name : name.substr(slash + 1);
    out.emplace_back(
        header_block({.name = only_ascii(folder + "PaxHeaders.0/" + last).substr(0, 100),
                      .size_bytes = record.size(),
                      .kind = 'x'}) +
        record + std::string(padding(record.size()), '\0'));
    header.name = only_ascii(name).substr(0, 100);
  }
  out.emplace_back(header_block(header));
  out.push_back(content);
  if (const uint64_t pad = padding(content.size_bytes()); pad > 0) {
    out.emplace_back(std::string(pad, '\0'));
  }
}

Body tar_end() { return Body(std::string(2 * kBlockBytes, '\0')); }

std::string gzip_of(std::string_view bytes) {
  z_stream stream{};
  constexpr int kGzip = 16;
  deflateInit2(&stream, Z_DEFAULT_COMPRESSION, Z_DEFLATED, MAX_WBITS + kGzip, 8,
               Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, bytes.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Stored, each with its size behind it, as in a stream.
std::string zip_of(const std::vector<Member>& members) {
  std::string out, directory;
  const auto put_common = [](std::string& into, uint32_t crc, uint64_t size, size_t name_size) {
    put_little(into, 20, 2);  // The version that it takes to read it,
    put_little(into, 8, 2);   // sizes come behind,
    put_little(into, 0, 2);   // stored,
    put_little(into, 0, 4);   // of no time.
    put_little(into, crc, 4);
    put_little(into, size, 4);
    put_little(into, size, 4);
    put_little(into, name_size, 2);
    put_little(into, 0, 2);
  };
  for (const Member& member : members) {
    const std::string bytes = member.body.copy();
    const uint32_t crc = crc32(bytes);
    const size_t begin = out.size();
    out += "PK\x03\x04";
    put_common(out, 0, 0, member.name.size());
    out += member.name + bytes + "PK\x07\x08";
    put_little(out, crc, 4);
    put_little(out, bytes.size(), 4);
    put_little(out, bytes.size(), 4);
    directory += "PK\x01\x02";
    put_little(directory, 20, 2);
    put_common(directory, crc, bytes.size(), member.name.size());
    put_little(directory, 0, 2);  // No comment,
    put_little(directory, 0, 2);  // on this disk,
    put_little(directory, 0, 6);  // without attributes.
    put_little(directory, begin, 4);
    directory += member.name;
  }
  const size_t begin = out.size();
  out += directory + "PK\x05\x06";
  put_little(out, 0, 4);
  put_little(out, members.size(), 2);
  put_little(out, members.size(), 2);
  put_little(out, directory.size(), 4);
  put_little(out, begin, 4);
  put_little(out, 0, 2);
  return out;
}

namespace {

// The key of WebDataset: the folder, and the last part up to its first dot.
std::string_view sample_key(std::string_view name) {
  const size_t slash = name.rfind('/');
  const size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
  const size_t dot = name.find('.', begin);
  return name.substr(0, dot);
}

bool matches(std::string_view name, std::string_view wanted, std::string_view mode) {
  if (mode == "prefix") return name.starts_with(wanted);
  if (mode == "suffix") return name.ends_with(wanted);
  if (mode == "substr") return name.contains(wanted);
  if (mode == "regexp") {
    return std::regex_search(std::string(name), std::regex(std::string(wanted)));
  }
  return sample_key(name) == wanted;
}

}  // namespace

Response get_members(const Call& call, Bucket& bucket, const Object& object) {
  const Request& request = call.request;
  const std::string path = request.parameter("archpath");
  const std::string wanted = request.parameter("archregx");
  const std::string mode = request.parameter("archmode");
  const std::string asked =
      path.empty() ? "(archregx=" + wanted + ", archmode=" + mode + ")" : "(archpath=" + path + ")";
  const std::string shown = BucketName::from_key(bucket.name).shown() + "/" + object.name;
  if (!request.header("range").empty()) {
    return error(
        request, 400, "ErrUnsupp",
        "cannot range-read archived content range: " + std::string(request.header("range")) +
            ", arch query: " + asked + " - operation not supported");
  }
  if (!is_archive(object.name)) {
    if (call.is_a()) {
      return error(request, 400, "ErrUnknownFileExt",
                   "unknown filename extension (\"" + object.name + "\", \"\")");
    }
    return error(request, 400, "",
                 "unrecognized or unsupported file format: \"" + object.name + "\"");
  }
  const std::vector<Member> members = members_of(object);
  const auto missing = [&](const std::string& what) {
    return error(request, 404, "ErrNotFound",
                 node_name(request.node) + ": " + what + " in " + shown + " does not exist");
  };
  if (!path.empty()) {
    const auto found = std::ranges::find(members, path, &Member::name);
    if (found == members.end()) return missing(call.is_a() ? asked : path);
    Response response{.body = found->body};
    response.set("Content-Type", "application/octet-stream");
    return response;
  }
  constexpr auto kModes =
      std::to_array<std::string_view>({"regexp", "prefix", "suffix", "substr", "wdskey"});
  if (std::ranges::find(kModes, mode) == kModes.end()) {
    return error(request, 400, "",
                 "dpq: 'archmode=" + mode + "', err: invalid matching mode \"" + mode +
                     "\", expecting one of: [regexp prefix suffix substr wdskey]");
  }
  std::vector<Body> out;
  for (const Member& member : members) {
    if (matches(member.name, wanted, mode)) append_tar_member(out, member.name, member.body, 0);
  }
  if (out.empty()) return missing(asked);
  out.push_back(tar_end());
  Response response{.body = Body::joined(std::move(out)), .chunked = true};
  response.set("Content-Type", "application/x-tar");
  return response;
}

}  // namespace faultserver::ais
