// A request for many objects, whose answer is a tar.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "headrace/format/tar.h"
#include "headrace/store/reading/batch_get.h"
#include "headrace/store/transfer/attempt.h"

namespace headrace {

// Puts each member of the answer into the memory of its slot, and says which slots have theirs. A
// member is believed only if it comes in its turn, by its name, and in the size that is known; then
// its sum is compared. Where only their order tells members apart, and no sum, they are believed
// once all of them have come. Nothing follows from the absence of one: the answer may leave any
// out, and may end early, without a word. Thread: I/O.
class BatchGetAttempt final : public Attempt {
 public:
  // With as much of a member left, it is received straight into its place; otherwise with what
  // follows it, and copied.
  static constexpr size_t kDirectBytes = 16 * 1024;
  static constexpr size_t kScratchBytes = 64 * 1024;
  // After the last slot's member: for the end of the archive, and that of the answer.
  static constexpr std::chrono::seconds kEndWithin{1};

  BatchGetAttempt(const Protocol& protocol, std::shared_ptr<BatchGet> get)
      : Attempt(protocol), get_(std::move(get)) {}

  void build(HttpRequest& request) override;
  std::string url() const override { return protocol().url_of(""); }
  bool has_alternative() const override { return true; }
  bool waits_in_vain(std::chrono::steady_clock::time_point now) override;

  Result<bool> result = true;

 private:
  bool accepts(int status) const override { return status == 200; }
  Result<void> begin_body(const ResponseHead& head) override;
  Result<std::span<std::byte>> body_space(uint64_t outstanding_bytes) override;
  Result<void> took_body(size_t count) override;
  Result<Verdict> finish() override;

  static constexpr size_t kNoTwins = SIZE_MAX;

  ReadSlot& slot(size_t at) { return get_->batch->slot(get_->slots[at].index); }
  // Slots whose members have the same name and size.
  struct Twins {
    size_t left = 0;               // of their members, to come
    std::vector<size_t> unproved;  // that came, and nothing but their order tells which they are
  };
  void find_twins();
  void believe(size_t at);
  Result<void> begin_member();
  std::optional<size_t> find(const TarMember& member, bool& is_missing) const;
  void take_data(std::span<const std::byte> data);
  void end_member();

  const std::shared_ptr<BatchGet> get_;
  std::vector<std::string> names_;  // of the members that are to come
  std::vector<Twins> twins_;
  std::vector<size_t> twins_of_;  // of each slot, or kNoTwins. Empty: no slot has any
  std::optional<TarReader> tar_;
  size_t next_ = 0;                // the first slot that may still come
  size_t member_count_ = 0;        // that came, whatever they were
  std::optional<size_t> current_;  // whose data comes now
  // Since when no slot can come any more.
  std::optional<std::chrono::steady_clock::time_point> had_all_since_;
  bool direct_ = false;  // where body_space() has pointed to
  std::unique_ptr<std::byte[]> scratch_;
};

}  // namespace headrace
