#include "storage.h"

#include "digest.h"
#include "text.h"

namespace faultserver {

Preconditions Preconditions::from(const Request& request) {
  const auto read = [&request](std::string_view parameter,
                               std::string_view header) -> std::optional<int64_t> {
    if (request.has_parameter(parameter)) return parse_i64(request.parameter(parameter));
    return parse_i64(request.header(header));
  };
  return {.generation_match = read("ifGenerationMatch", "x-goog-if-generation-match"),
          .generation_not_match = read("ifGenerationNotMatch", "x-goog-if-generation-not-match"),
          .metageneration_match = read("ifMetagenerationMatch", "x-goog-if-metageneration-match"),
          .metageneration_not_match =
              read("ifMetagenerationNotMatch", "x-goog-if-metageneration-not-match")};
}

int Preconditions::check(const Object* current, bool is_read) const {
  // Generation 0 stands for "no object".
  const int64_t generation = current ? current->generation : 0;
  const int64_t metageneration = current ? current->metageneration : 0;
  if (generation_match && *generation_match != generation) return 412;
  if (metageneration_match && *metageneration_match != metageneration) return 412;
  const int not_match_status = is_read ? 304 : 412;
  if (generation_not_match && *generation_not_match == generation) return not_match_status;
  if (metageneration_not_match && *metageneration_not_match == metageneration) {
    return not_match_status;
  }
  return 0;
}

void read_metadata(const Json& json, Object& draft) {
  const auto read = [&json](std::string_view name, std::string& into) {
    if (json[name].is_string()) into = json[name].text();
  };
  read("name", draft.name);
  read("contentType", draft.content_type);
  read("contentEncoding", draft.content_encoding);
  read("contentDisposition", draft.content_disposition);
  read("contentLanguage", draft.content_language);
  read("cacheControl", draft.cache_control);
  read("customTime", draft.custom_time);
  read("storageClass", draft.storage_class);
  for (const auto& [name, value] : json["metadata"].object()) {
    std::erase_if(draft.metadata, [&name](const auto& member) { return member.first == name; });
    if (!value.is_null()) draft.metadata.emplace_back(name, value.text());
  }
}

Bucket::Bucket(std::string bucket_name) : name(std::move(bucket_name)), created_us(now_us()) {}

ObjectPtr Bucket::made(uint64_t rank) const {
  auto object = std::make_shared<Object>();
  object->name = synthetic->name(rank);
  object->body = synthetic->content(rank);
  object->crc = synthetic->crc(rank);
  object->is_made = true;
  object->generation = created_us + static_cast<int64_t>(rank);
  object->created_us = object->updated_us = created_us;
  object->content_type = "application/octet-stream";
  return object;
}

ObjectPtr Bucket::find(std::string_view object_name, std::optional<int64_t> generation) {
  ObjectPtr found;
  if (const auto at = stored_.find(object_name); at != stored_.end()) {
    found = at->second;
  } else if (synthetic) {
    const std::optional<uint64_t> rank = synthetic->find(object_name);
    if (rank && !hidden_.contains(*rank)) found = made(*rank);
  }
  if (generation && (!found || found->generation != *generation)) {
    const auto at = noncurrent_.find({std::string(object_name), *generation});
    return at == noncurrent_.end() ? nullptr : at->second;
  }
  return found;
}

void Bucket::put(ObjectPtr object) {
  erase(object->name);
  stored_[object->name] = std::move(object);
}

bool Bucket::erase(std::string_view object_name) {
  if (versioning) {
    if (const ObjectPtr old = find(object_name)) put_noncurrent(old);
  }
  return remove_live(object_name);
}

bool Bucket::remove_live(std::string_view object_name) {
  if (const auto at = stored_.find(object_name); at != stored_.end()) {
    stored_.erase(at);
    return true;
  }
  if (!synthetic) return false;
  const std::optional<uint64_t> rank = synthetic->find(object_name);
  return rank && hidden_.insert(*rank).second;
}

void Bucket::put_noncurrent(ObjectPtr object) {
  std::pair<std::string, int64_t> key(object->name, object->generation);
  noncurrent_[std::move(key)] = std::move(object);
}

ObjectPtr Bucket::newest_noncurrent(std::string_view object_name) const {
  auto after = noncurrent_.upper_bound({std::string(object_name), INT64_MAX});
  if (after == noncurrent_.begin()) return nullptr;
  --after;
  return after->first.first == object_name ? after->second : nullptr;
}

void Bucket::erase_version(std::string_view object_name, int64_t generation) {
  const ObjectPtr live = find(object_name);
  if (live && live->generation == generation) {
    remove_live(object_name);
  } else {
    noncurrent_.erase({std::string(object_name), generation});
    if (live) return;
  }
  const ObjectPtr newest = newest_noncurrent(object_name);
  if (!newest || newest->s3.is_delete_marker) return;
  noncurrent_.erase({newest->name, newest->generation});
  stored_[newest->name] = newest;
}

bool Bucket::empty() const {
  return stored_.empty() && (!synthetic || hidden_.size() == synthetic->count());
}

void Bucket::Cursor::seek(std::string_view wanted) {
  stored_ = bucket_.stored_.lower_bound(wanted);
  if (bucket_.synthetic) {
    rank_ = bucket_.synthetic->lower_bound(wanted);
    while (bucket_.hidden_.contains(rank_)) ++rank_;
    if (rank_ < bucket_.synthetic->count()) made_name_ = bucket_.synthetic->name(rank_);
  }
  choose();
}

void Bucket::Cursor::choose() {
  const bool has_made = bucket_.synthetic && rank_ < bucket_.synthetic->count();
  const bool has_stored = stored_ != bucket_.stored_.end();
  valid_ = has_made || has_stored;
  at_made_ = has_made && (!has_stored || made_name_ < stored_->first);
  if (valid_) name_ = at_made_ ? made_name_ : stored_->first;
}

void Bucket::Cursor::advance() {
  if (at_made_) {
    do {
      ++rank_;
    } while (bucket_.hidden_.contains(rank_));
    if (rank_ < bucket_.synthetic->count()) made_name_ = bucket_.synthetic->name(rank_);
  } else {
    ++stored_;
  }
  choose();
}

ObjectPtr Bucket::Cursor::object() const {
  return at_made_ ? bucket_.made(rank_) : stored_->second;
}

Bucket* Storage::find(std::string_view name) {
  const auto at = buckets_.find(name);
  return at == buckets_.end() ? nullptr : at->second.get();
}

Bucket& Storage::create(const std::string& name) {
  std::unique_ptr<Bucket>& slot = buckets_[name];
  if (!slot) {
    slot = std::make_unique<Bucket>(name);
    slot->s3 = new_s3;
  }
  return *slot;
}

bool Storage::erase(std::string_view name) {
  const auto at = buckets_.find(name);
  if (at == buckets_.end()) return false;
  buckets_.erase(at);
  return true;
}

int64_t Storage::next_generation() {
  last_generation_ = std::max(last_generation_ + 1, now_us());
  return last_generation_;
}

ObjectPtr Storage::commit(Bucket& bucket, Object draft, bool with_md5) {
  draft.generation = next_generation();
  draft.created_us = draft.updated_us = draft.generation;
  draft.metageneration = 1;
  draft.is_made = false;
  if (with_md5 && compute_md5) {
    draft.md5 = md5(draft.body.copy());
  }
  auto object = std::make_shared<const Object>(std::move(draft));
  bucket.put(object);
  return object;
}

void Storage::clear() {
  buckets_.clear();
  sessions.clear();
  min_part_bytes = uint64_t{5} << 20;
  max_parts = 10'000;
  new_s3 = first_s3;
}

}  // namespace faultserver
