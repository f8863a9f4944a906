#include "headrace/store/multipart_upload.h"

#include <algorithm>
#include <utility>

#include "headrace/store/http_store.h"

namespace headrace {

MultipartUpload::MultipartUpload(std::shared_ptr<HttpStore> store, WriteRequest target)
    : HttpUpload(std::move(store), std::move(target)),
      name_(cat(new_temporary_prefix(), "000001")) {}

MultipartUpload::Limits MultipartUpload::limits() const {
  Limits limits = HttpUpload::limits();
  limits.min_part_bytes =
      std::max(limits.min_part_bytes, store_->write_limits().min_multipart_part_bytes);
  limits.max_parts = store_->write_limits().max_multipart_parts;
  return limits;
}

void MultipartUpload::send(std::shared_ptr<const UploadPart> part, Done done) {
  Waiting waiting{std::move(part), std::move(done)};
  std::string id;
  std::optional<Error> error;
  bool start = false;
  {
    const Lock lock(mutex_);
    if (start_error_) {
      error = *start_error_;
    } else if (id_.empty()) {
      start = !std::exchange(starting_, true);
      waiting_.push_back(std::exchange(waiting, {}));
    } else {
      id = id_;
    }
  }
  if (error) {
    waiting.done(std::unexpected(std::move(*error)));
  } else if (!id.empty()) {
    send_now(id, std::move(waiting));
  } else if (start) {
    track<std::string>(
        bucket_->start_multipart({.name = name_, .content_type = target_.content_type}),
        [this](Result<std::string> result) { started(std::move(result)); });
  }
}

void MultipartUpload::started(Result<std::string> id) {
  std::deque<Waiting> waiting;
  std::optional<Error> error;
  {
    const Lock lock(mutex_);
    waiting.swap(waiting_);
    if (id) {
      id_ = *id;
    } else {
      start_error_ = with_url(std::move(id.error()));
      error = *start_error_;
    }
  }
  for (Waiting& each : waiting) {
    if (error) {
      each.done(std::unexpected(*error));
    } else {
      send_now(*id, std::move(each));
    }
  }
}

void MultipartUpload::send_now(const std::string& id, Waiting waiting) {
  const uint32_t number = waiting.part->part_number;
  track<SentPart>(bucket_->send_part(name_, id, std::move(waiting.part)),
                  [this, number, done = std::move(waiting.done)](Result<SentPart> sent) mutable {
                    if (!sent) {
                      done(std::unexpected(in_part(number, std::move(sent.error()))));
                      return;
                    }
                    {
                      const Lock lock(mutex_);
                      sent_.resize(std::max<size_t>(sent_.size(), number));
                      sent_[number - 1] = std::move(*sent);
                    }
                    done({});
                  });
}

void MultipartUpload::publish(const Whole& whole, Published done) {
  begin_publishing(whole, std::move(done));
  std::string id;
  std::vector<SentPart> sent;
  {
    const Lock lock(mutex_);
    completing_ = true;
    id = id_;
    sent = sent_;
  }
  track<ObjectInfo>(bucket_->complete_multipart(name_, std::move(id), std::move(sent), whole),
                    [this, whole](Result<ObjectInfo> info) {
                      if (!info) {
                        finish(std::unexpected(with_url(std::move(info.error()))));
                        return;
                      }
                      {
                        const Lock lock(mutex_);
                        generation_ = info->generation;
                      }
                      publish_joined({{.name = name_,
                                       .generation = info->generation,
                                       .size_bytes = whole.size_bytes,
                                       .crc32c = whole.crc32c}});
                    });
}

void MultipartUpload::begin_cleaning() {
  std::string id, generation;
  bool remove = false, abort = false;
  {
    const Lock lock(mutex_);
    id = id_;
    generation = generation_;
    remove = completing_;
    abort = !id_.empty() && generation_.empty();
    cleaning_steps_ = size_t{remove} + size_t{abort};
  }
  if (!remove && !abort) cleaned({});
  const auto then = [this, self = shared_from_this()](Result<bool> result) {
    step_cleaned(std::move(result));
  };
  if (abort) bucket_->abort_multipart(name_, std::move(id))->then(then);
  if (remove) {
    Precondition condition;
    if (!generation.empty()) condition.generation = std::move(generation);
    bucket_->remove(name_, std::move(condition))->then(then);
  }
}

void MultipartUpload::step_cleaned(Result<bool> result) {
  Result<void> all;
  {
    const Lock lock(mutex_);
    if (!result && result.error().code() != Code::kNotFound && !clean_error_) {
      clean_error_ = std::move(result.error());
    }
    if (--cleaning_steps_ > 0) return;
    if (clean_error_) {
      all = std::unexpected(Error(
          clean_error_->code(),
          cat("the temporary object ", name_, " could not be removed: ", clean_error_->message())));
    }
  }
  cleaned(std::move(all));
}

}  // namespace headrace
