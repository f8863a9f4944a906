// The attempts behind list and stat, and that which asks for the map of a cluster.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "headrace/store/temporary_names.h"
#include "headrace/store/transfer/attempt.h"

namespace headrace {

// Page: an ObjectPage or a ColumnPage.
template <class Page>
class ListAttempt final : public TextAttempt {
 public:
  // Borrows `temporaries`. Raises `largest_page_bytes` to the size of the answer.
  ListAttempt(const Protocol& protocol, const TemporaryNames& temporaries, ListRequest request,
              std::atomic<uint64_t>& largest_page_bytes);
  void build(HttpRequest& request) override;
  // Not a page of a long listing, for which the server keeps a state.
  std::optional<ExpectedAnswer> hedgeable() const override;
  // The bucket's, if it is what is missing.
  std::string url() const override;
  Result<Page> result;

 private:
  Result<std::span<std::byte>> body_space(uint64_t outstanding_bytes) override;
  Result<Verdict> finish() override;
  Result<Verdict> refused(Error error) override;
  const TemporaryNames& temporaries_;
  bool no_bucket_ = false;
  const ListRequest request_;
  const std::unique_ptr<LongPage> long_page_;
  std::atomic<uint64_t>& largest_page_bytes_;
};

// Asks for the map of a cluster.
class MapAttempt final : public TextAttempt {
 public:
  using TextAttempt::TextAttempt;
  void build(HttpRequest& request) override { protocol().placement()->build_map(request); }
  std::string url() const override { return protocol().url_of(""); }
  bool asks_for_map() const override { return true; }
  Result<std::shared_ptr<const HostMap>> result;

 private:
  Result<Verdict> finish() override;
};

class StatAttempt final : public TextAttempt {
 public:
  StatAttempt(const Protocol& protocol, std::string name);
  void build(HttpRequest& request) override;
  std::optional<ExpectedAnswer> hedgeable() const override {
    return ExpectedAnswer{.kind = AnswerKind::kStat};
  }
  std::string url() const override { return protocol().url_of(name_); }
  Result<ObjectInfo> result;

 private:
  Result<Verdict> finish() override;
  const std::string name_;
};

}  // namespace headrace
