#include "headrace/store/writing/relayed_upload.h"

#include <utility>

#include "headrace/store/read_batch.h"

namespace headrace {

RelayedUpload::RelayedUpload(std::shared_ptr<RemoteRoot> remote,
                             std::shared_ptr<ObjectStore> stored, std::shared_ptr<Upload> to,
                             CopyRequest request, ObjectInfo source, uint32_t part_count)
    : remote_(std::move(remote)),
      stored_(std::move(stored)),
      to_(std::move(to)),
      request_(std::move(request)),
      source_(std::move(source)),
      part_count_(part_count),
      read_(part_count) {}

void RelayedUpload::send(std::shared_ptr<const UploadPart> part, Done done) {
  auto whole = std::make_shared<UploadPart>(UploadPart{.part_number = part->part_number,
                                                       .offset_bytes = part->offset_bytes,
                                                       .size_bytes = part->size_bytes});
  whole->blocks.push_back(remote_->engine().pool->allocate(part->size_bytes));
  Block& block = whole->blocks.back();
  if (block.data() == nullptr) {
    failed(Error(Code::kExhausted, cat("the system has no memory for ", part->size_bytes, " bytes"))
               .with_url(remote_->url_of(request_.name)),
           std::move(done));
    return;
  }
  whole->spans.push_back(block.bytes());
  const uint64_t begin = part->offset_bytes, end = begin + part->size_bytes;
  const std::shared_ptr<ReadBatch> batch = ReadBatch::create(1);
  const std::string name = remote_->root().full_name(request_.source_name);
  batch->add({.name = name,
              .generation = source_.generation,
              .size_bytes = source_.size_bytes,
              .range = part_count_ == 1 ? std::nullopt : std::optional(ByteRange{begin, end}),
              .into = block.bytes(),
              .has_into = true,
              .wanted_sum = ChecksumKind::kCrc32c});
  bool cancelled = false;
  {
    const Lock lock(mutex_);
    reading_.push_back(batch);
    cancelled = cancelled_;
  }
  auto kept = std::make_shared<Done>(std::move(done));  // a std::function must be copyable
  batch->then([self = shared_from_this(), whole, kept](ReadBatch& read) {
    self->took(whole, read, std::move(*kept));
  });
  batch->want();
  stored_->read(batch);
  if (cancelled) batch->cancel();
}

void RelayedUpload::took(std::shared_ptr<UploadPart> part, ReadBatch& batch, Done done) {
  ReadSlot& slot = batch.slot(0);
  if (slot.error) {
    failed(*slot.error, std::move(done));
    return;
  }
  part->crc32c = slot.sum().crc32c().value_or(Crc32c());
  const std::shared_ptr<const UploadPart> sent = std::move(part);
  {
    const Lock lock(mutex_);
    read_[sent->part_number - 1] = {.size_bytes = sent->size_bytes, .crc32c = sent->crc32c};
    if (part_count_ == 1) single_ = sent;
  }
  if (part_count_ == 1) {
    done({});
    return;
  }
  {
    const Lock lock(mutex_);
    waiting_.emplace(sent->part_number, Waiting{sent, std::move(done)});
  }
  forward();
}

// What has been read behind this part is not sent any more, and ends.
void RelayedUpload::failed(const Error& error, Done done) {
  {
    const Lock lock(mutex_);
    if (!error_) error_ = error;
  }
  done(std::unexpected(error));
  forward();
}

// An upload is given its parts in turn, whoever has read which first.
void RelayedUpload::forward() {
  while (true) {
    Waiting next;
    std::optional<Error> error;
    {
      const Lock lock(mutex_);
      const auto first = waiting_.begin();
      if (forwarding_ || first == waiting_.end()) return;
      if (!error_ && first->first != next_part_) return;
      error = error_;
      next = std::move(first->second);
      waiting_.erase(first);
      ++next_part_;
      forwarding_ = !error;
    }
    if (error) {
      next.done(std::unexpected(std::move(*error)));
      continue;
    }
    to_->send(std::move(next.part), std::move(next.done));
    const Lock lock(mutex_);
    forwarding_ = false;
  }
}

void RelayedUpload::publish(const Whole& whole, Published done) {
  Whole all = whole;
  std::shared_ptr<const UploadPart> single;
  {
    const Lock lock(mutex_);
    all.crc32c = {};
    for (const Whole& part : read_) all.crc32c = all.crc32c.joined(part.crc32c, part.size_bytes);
    single = std::move(single_);
  }
  if (part_count_ > 1) {
    to_->publish(all, std::move(done));
  } else {
    if (single == nullptr) single = std::make_shared<const UploadPart>();
    to_->publish_single(std::move(single), std::move(done));
  }
}

void RelayedUpload::publish_single(std::shared_ptr<const UploadPart> part, Published done) {
  to_->publish_single(std::move(part), std::move(done));
}

void RelayedUpload::cancel() {
  std::vector<std::weak_ptr<ReadBatch>> reading;
  {
    const Lock lock(mutex_);
    cancelled_ = true;
    reading.swap(reading_);
  }
  for (const std::weak_ptr<ReadBatch>& each : reading) {
    if (const std::shared_ptr<ReadBatch> batch = each.lock()) batch->cancel();
  }
  to_->cancel();
}

}  // namespace headrace
