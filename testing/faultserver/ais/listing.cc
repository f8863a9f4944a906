// list-objects, as JSON and as MessagePack.
#include <algorithm>
#include <map>
#include <set>

#include "ais/ais.h"
#include "ais/archives.h"
#include "text.h"

namespace faultserver::ais {
namespace {

constexpr uint64_t kDefaultPage = 10'000;

enum Flag : uint64_t {
  kMembers = 8,
  kNameOnly = 16,
  kNameSize = 32,
  kBit9 = 512,  // A: use the cache of listings; B: only what the cluster does not have.
  kNoRecursion = 2048,
};
enum EntryFlag : uint64_t { kPresent = 64, kInArchive = 128, kFolder = 256, kOfListing = 512 };

struct Asked {
  std::string prefix{}, token{}, start_after{};
  bool names_walk = false;  // By the uuid that the page before came with.
  std::set<std::string, std::less<>> props{};
  uint64_t flags = 0;
  uint64_t page_size = kDefaultPage;
  bool has(Flag flag) const { return (flags & flag) != 0; }
  bool wants(std::string_view prop) const { return props.contains(prop); }
};

struct Entry {
  std::string name{};
  ObjectPtr object{};  // None for members and folders.
  uint64_t size_bytes = 0, flags = 0;
  // By which it is in order: a folder stands where its objects are.
  std::string place() const {
    return (flags & kFolder) != 0 && !name.ends_with('/') ? name + "/" : name;
  }
};

std::string when(int64_t us) {
  // "24 Nov 26 08:23 UTC"
  const std::string iso = iso_time(us);  // 2026-11-24T08:23:...
  constexpr std::string_view kMonths = "JanFebMarAprMayJunJulAugSepOctNovDec";
  const uint64_t month = parse_u64(iso.substr(5, 2)).value_or(1);
  return iso.substr(8, 2) + " " + std::string(kMonths.substr(3 * (month - 1), 3)) + " " +
         iso.substr(2, 2) + " " + iso.substr(11, 5) + " UTC";
}

// The same page in either form.
class Writer {
 public:
  Writer(bool is_packed, const Call& call, Bucket& bucket, const Asked& asked)
      : is_packed_(is_packed), call_(call), bucket_(bucket), asked_(asked) {}

  std::string page(const std::string& uuid, const std::string& token,
                   const std::vector<Entry>& entries) {
    if (is_packed_) {
      out_ += '\x84';
      pack_text("UUID");
      pack_text(uuid);
      pack_text("ContinuationToken");
      pack_text(token);
      pack_text("Entries");
      pack_count(entries.size());
      for (const Entry& entry : entries) write_entry(entry);
      pack_text("Flags");
      out_ += '\0';
      return std::move(out_);
    }
    out_ = "{\"uuid\":" + Json(uuid).dump() + ",\"continuation_token\":" + Json(token).dump() +
           ",\"entries\":";
    bool is_first = true;
    for (const Entry& entry : entries) {
      out_ += std::exchange(is_first, false) ? '[' : ',';
      write_entry(entry);
    }
    out_ += entries.empty() ? "null" : "]";
    out_ += ",\"flags\":0}\n";
    return std::move(out_);
  }

 private:
  void write_entry(const Entry& entry) {
    const size_t begin = out_.size();
    members_ = 0;
    out_ += is_packed_ ? '\x80' : '{';
    text_member("name", "n", entry.name);
    const Object* const object = entry.object.get();
    if (object && asked_.wants("checksum")) {
      text_member("checksum", "cs", checksum_of(bucket_, *object).value);
    }
    if (object && asked_.wants("atime")) text_member("atime", "a", when(object->updated_us));
    if (object && asked_.wants("version")) {
      text_member("version", "v", std::to_string(std::max<int64_t>(1, object->ais.version)));
    }
    if (object && asked_.wants("location")) {
      text_member(
          "location", "t",
          node_name(place(call_.world, bucket_, *object)) + ":mp[/faultserver/mp1, memory]");
    }
    if (object && asked_.wants("custom") && !object->metadata.empty()) {
      std::string text;
      for (const auto& [name, value] : object->metadata) {
        text += (text.empty() ? "map[" : " ") + name + ":" + value;
      }
      text_member("custom-md", "m", text + "]");
    }
    // Nothing is said of the size of what is empty.
    if (asked_.wants("size") && entry.size_bytes > 0) {
      if (is_packed_) {
        number_member("s", entry.size_bytes, true);
      } else {
        text_member("size", "s", std::to_string(entry.size_bytes));
      }
    }
    if (object && asked_.wants("copies")) {
      is_packed_ ? number_member("c", 1, true) : plain_member("copies", 1);
    }
    if (entry.flags != 0) {
      is_packed_ ? number_member("f", entry.flags, false) : plain_member("flags", entry.flags);
    }
    if (is_packed_) {
      out_[begin] = static_cast<char>(0x80 | members_);
    } else {
      out_ += '}';
    }
  }

  void text_member(std::string_view name, std::string_view short_name, std::string_view value) {
    if (value.empty()) return;
    if (is_packed_) {
      pack_text(short_name);
      pack_text(value);
    } else {
      if (members_ > 0) out_ += ',';
      out_ += '"';
      out_ += name;
      out_ += "\":";
      Json(value).append_to(out_);
    }
    ++members_;
  }

  void plain_member(std::string_view name, uint64_t value) {
    if (members_ > 0) out_ += ',';
    out_ += '"';
    out_ += name;
    out_ += "\":";
    append_number(out_, value);
    ++members_;
  }

  void number_member(std::string_view short_name, uint64_t value, bool is_signed) {
    pack_text(short_name);
    pack_number(value, is_signed);
    ++members_;
  }

  void big_end(uint64_t value, int bytes) {
    for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8) {
      out_ += static_cast<char>(value >> shift);
    }
  }

  void pack_text(std::string_view text) {
    if (text.size() < 32) {
      out_ += static_cast<char>(0xa0 | text.size());
    } else if (text.size() < 256) {
      out_ += '\xd9';
      big_end(text.size(), 1);
    } else if (text.size() < 65536) {
      out_ += '\xda';
      big_end(text.size(), 2);
    } else {
      out_ += '\xdb';
      big_end(text.size(), 4);
    }
    out_ += text;
  }

  void pack_count(size_t count) {
    if (count < 16) {
      out_ += static_cast<char>(0x90 | count);
    } else if (count < 65536) {
      out_ += '\xdc';
      big_end(count, 2);
    } else {
      out_ += '\xdd';
      big_end(count, 4);
    }
  }

  void pack_number(uint64_t value, bool is_signed) {
    const uint64_t half = is_signed ? 1 : 0;  // A signed number has one bit less.
    if (value < 128) {
      out_ += static_cast<char>(value);
    } else if (value < 256 && !is_signed) {
      out_ += '\xcc';
      big_end(value, 1);
    } else if (value < (65536u >> half)) {
      out_ += is_signed ? '\xd1' : '\xcd';
      big_end(value, 2);
    } else if (value < ((uint64_t{1} << 32) >> half)) {
      out_ += is_signed ? '\xd2' : '\xce';
      big_end(value, 4);
    } else {
      out_ += is_signed ? '\xd3' : '\xcf';
      big_end(value, 8);
    }
  }

  const bool is_packed_;
  const Call& call_;
  Bucket& bucket_;
  const Asked& asked_;
  std::string out_;
  uint64_t members_ = 0;
};

std::optional<Response> read_message(const Call& call, const Bucket& bucket, Asked& asked) {
  const Request& request = call.request;
  Json value = Json::Object{};
  if (!request.body.empty()) {
    const std::optional<Json> message = Json::parse(request.body);
    if (!message) {
      return error(request, 400, "",
                   node_name(0) + ": failed to unmarshal [*apc.ActMsg] (GET), err: not JSON");
    }
    const std::string action = (*message)["action"].text();
    if (action != "list") return invalid_action(request, action);
    value = (*message)["value"];
    if (value.is_null()) {
      const BucketName name = BucketName::from_key(bucket.name);
      return error(request, 400, "",
                   "bad list-buckets request: \"" + name.name + "\" vs \"\" (" + name.shown() +
                       ", actm[list])");
    }
  }
  // One that nobody has given out; the shortest are longer.
  if (const std::string uuid = value["uuid"].text(); !uuid.empty() && uuid.size() < 8) {
    return error(request, 400, "", "list-objects: invalid UUID \"" + uuid + "\"");
  }
  if (const Json& size = value["pagesize"]; !size.is_null() && !size.is_number()) {
    return error(request, 400, "",
                 node_name(0) +
                     ": failed to unmarshal list (map[string]interface {}), err: "
                     "apc.LsoMsg.PageSize: readUint64: unexpected character: \xEF\xBF\xBD");
  }
  if (const Json& flags = value["flags"]; !flags.is_null() && !flags.is_string()) {
    return error(request, 400, "",
                 node_name(0) +
                     ": failed to unmarshal list (map[string]interface {}), err: "
                     "apc.LsoMsg.Flags: stringModeNumberDecoder: expect \", but found " +
                     flags.dump().substr(0, 1));
  }
  asked.names_walk = value["uuid"].text() != "";
  asked.prefix = value["prefix"].text();
  // As in `ls abc*`; the targets see what is left of it.
  if (!call.is_a() && asked.prefix.ends_with('*')) asked.prefix.pop_back();
  asked.token = value["continuation_token"].text();
  asked.start_after = value["start_after"].text();
  asked.flags = parse_u64(value["flags"].text("0")).value_or(0);
  const std::string props = value["props"].text();
  for (const std::string_view each : split(props.empty() ? "name,size" : props, ',')) {
    asked.props.emplace(trim(each));
  }
  if (asked.has(kNameOnly)) asked.props = {"name"};
  if (asked.has(kNameSize)) asked.props = {"name", "size"};
  const auto size = static_cast<uint64_t>(std::max<int64_t>(0, value["pagesize"].integer()));
  asked.page_size = size == 0 ? kDefaultPage : size;
  if (bucket.max_page) asked.page_size = std::min(asked.page_size, *bucket.max_page);
  if (!call.is_a() && asked.has(kBit9) && BucketName::from_key(bucket.name).provider == "ais") {
    return error(request, 400, "",
                 BucketName::from_key(bucket.name).shown() +
                     " is not a remote bucket - cannot list 'not cached' objects");
  }
  return std::nullopt;
}

// The entries of a listing, in order.
class Walk {
 public:
  Walk(const Call& call, Bucket& bucket, const Asked& asked)
      : call_(call), bucket_(bucket), asked_(asked), folder_(asked.prefix) {
    if (folder_.ends_with('/')) folder_.pop_back();
  }

  // At most `count` of those after `after`. `more` says whether one follows.
  std::vector<Entry> take(const std::string& after, uint64_t count, bool& more) {
    std::vector<Entry> out;
    more = false;
    // Without the uuid the server has lost which archive it was in, and goes on behind it.
    const bool is_within = asked_.has(kMembers) && asked_.names_walk;
    Bucket::Cursor cursor(bucket_);
    // A prefix that is a folder's name gives that folder alone.
    if (!folder_.empty()) cursor.seek(folder_ + "/");
    const bool is_folder =
        cursor.valid() && !folder_.empty() && cursor.name().starts_with(folder_ + "/");
    const std::string prefix = is_folder ? folder_ + "/" : asked_.prefix;
    cursor.seek(std::max(prefix, is_within ? shard_of(after) : after));
    while (cursor.valid() && cursor.name().starts_with(prefix)) {
      for (Entry& entry : entries_at(cursor)) {
        if (!after.empty() && entry.place() <= after) continue;
        if (out.size() == count) {
          more = true;
          return out;
        }
        out.push_back(std::move(entry));
      }
    }
    return out;
  }

 private:
  // A member comes behind its shard, which comes before other names that begin like it.
  std::string shard_of(const std::string& name) {
    for (size_t slash = name.find('/'); slash != std::string::npos;
         slash = name.find('/', slash + 1)) {
      const std::string shard = name.substr(0, slash);
      if (is_archive(shard) && bucket_.find(shard)) return shard;
    }
    return name;
  }

  // What stands in the listing for the object there, and moves on.
  std::vector<Entry> entries_at(Bucket::Cursor& cursor) {
    const std::string name = cursor.name();
    if (asked_.has(kNoRecursion)) {
      if (std::optional<std::string> folder = folder_of(name)) {
        // Behind all that lies in it.
        cursor.seek(folder->empty() ? name + '\0' : *folder + static_cast<char>('/' + 1));
        if (folder->empty()) return {};
        return {{.name = call_.is_a() ? *folder : *folder + "/", .flags = kFolder}};
      }
    }
    std::vector<Entry> out;
    if (asked_.has(kNoRecursion) && call_.is_a() && !folder_.empty() &&
        name.starts_with(folder_ + "/") && !std::exchange(has_told_own_, true)) {
      out.push_back({.name = folder_, .flags = kFolder});
    }
    Entry entry{.name = name, .object = cursor.object()};
    cursor.advance();
    entry.size_bytes = entry.object->body.size_bytes();
    const bool uses_cache = call_.is_a() && asked_.has(kBit9);
    if (!entry.object->ais.is_cold && !uses_cache) entry.flags = kPresent;
    std::vector<Entry> members;
    if (asked_.has(kMembers) && is_archive(name)) {
      entry.flags |= kOfListing;
      for (const Member& member : members_of(*entry.object)) {
        members.push_back({.name = name + "/" + member.name,
                           .size_bytes = member.body.size_bytes(),
                           .flags = kPresent | kInArchive | (call_.is_a() ? kOfListing : 0)});
      }
      std::ranges::sort(members, {}, &Entry::name);
    }
    out.push_back(std::move(entry));
    std::ranges::move(members, std::back_inserter(out));
    return out;
  }

  // The folder, without its slash, by which a listing without recursion stands for `name`; empty:
  // it is left out. Nothing for an object that is listed.
  std::optional<std::string> folder_of(const std::string& name) const {
    // Within the folder that the prefix names, whose own slash does not count.
    const bool is_within = !folder_.empty() && name.starts_with(folder_ + "/");
    const size_t slash = name.find('/', folder_.size() + (is_within ? 1 : 0));
    if (slash == std::string::npos) return std::nullopt;
    // A tells of the folder of the prefix, and nothing of those in it.
    if (call_.is_a() && is_within) return std::string();
    return name.substr(0, slash);
  }

  const Call& call_;
  Bucket& bucket_;
  const Asked& asked_;
  std::string folder_;  // That the prefix names, if it does.
  bool has_told_own_ = false;
};

// As names are ordered where each folder is walked before what comes after it.
bool is_walked_before(const Entry& a, const Entry& b) {
  const auto rank = [](char c) { return c == '/' ? 0 : static_cast<unsigned char>(c); };
  return std::ranges::lexicographical_compare(a.name, b.name, {}, rank, rank);
}

// A page before the last. Each target walks folder by folder, and ends its page somewhere. A goes
// as far as the target that has ended first, and has a token only if that makes a full page.
std::vector<Entry> page_by_targets(const Call& call, Bucket& bucket, const Asked& asked,
                                   std::vector<Entry> all, std::string& token) {
  std::map<int64_t, std::vector<Entry>> by_target;
  for (Entry& entry : all) {
    by_target[static_cast<int64_t>(place(call.world, bucket, *entry.object))].push_back(
        std::move(entry));
  }
  std::vector<Entry> page;
  std::optional<std::string> first_end;
  for (auto& [target, entries] : by_target) {
    std::ranges::stable_sort(entries, is_walked_before);
    if (entries.size() >= asked.page_size) {
      entries.resize(asked.page_size);
      const std::string& end = entries.back().name;
      if (!first_end || end < *first_end) first_end = end;
    }
    std::ranges::move(entries, std::back_inserter(page));
  }
  std::ranges::sort(page, {}, &Entry::name);
  if (call.is_a() && first_end) {
    std::erase_if(page, [&](const Entry& entry) { return entry.name > *first_end; });
  }
  if (page.size() > asked.page_size) page.resize(asked.page_size);
  token = page.size() == asked.page_size ? page.back().name : "";
  return page;
}

}  // namespace

Response list_objects(const Call& call, Bucket& bucket) {
  using ListFault = AisBucket::ListFault;
  Asked asked;
  if (std::optional<Response> wrong = read_message(call, bucket, asked)) return *wrong;
  const std::string after = std::max(asked.token, asked.start_after);
  Walk walk(call, bucket, asked);
  bool more = false;
  std::vector<Entry> entries = walk.take(after, asked.page_size, more);
  // A full page has a token, even if nothing follows.
  std::string token = entries.size() == asked.page_size ? entries.back().place() : "";
  const ListFault fault = bucket.ais.list_fault;
  if (more && fault == ListFault{} && !asked.has(kMembers) && !asked.has(kNoRecursion)) {
    entries = page_by_targets(call, bucket, asked, walk.take(after, UINT64_MAX, more), token);
  }
  if (fault == ListFault::kEndsEarly && more) token.clear();
  if (fault == ListFault::kDropsPage && more && asked.token.empty()) {
    const std::vector<Entry> dropped = walk.take(token, asked.page_size, more);
    if (!dropped.empty()) token = dropped.back().place();
  }
  if (fault == ListFault::kRepeatsToken && !asked.token.empty()) token = asked.token;
  const bool is_packed = call.request.header("accept").contains("application/msgpack");
  const std::string uuid = "L" + hex16(mix(++call.world.ais.last_number)).substr(0, 8);
  Writer writer(is_packed, call, bucket, asked);
  Response response{.body = Body(writer.page(uuid, token, entries))};
  response.set("Content-Type",
               is_packed ? "application/msgpack" : "application/json; charset=utf-8");
  return response;
}

}  // namespace faultserver::ais
