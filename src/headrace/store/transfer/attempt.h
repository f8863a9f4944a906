// What one operation asks, and how it takes the answer.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/block_pool.h"
#include "headrace/http/message.h"
#include "headrace/store/protocol.h"
#include "headrace/store/transfer/hedge_rules.h"

namespace headrace {

// Decides whether an attempt may take a response. Thread: I/O.
class HeadGate {
 public:
  // Before anything is done with the head. An error ends the exchange, and the attempt has not
  // been touched.
  virtual Result<void> admit(const ResponseHead& head) = 0;

 protected:
  ~HeadGate() = default;
};

// What an operation asks, and how it handles the answer. A refusal (a status that the attempt does
// not accept) is read to its end here and becomes an Error; only accepted bodies reach the
// subclass.
// Thread: I/O. Borrows the protocol.
class Attempt : public ResponseSink {
 public:
  enum class Verdict : uint8_t {
    kDone,
    kAgain,  // succeeded, and another request follows (such as the next step of a copy)
  };

  explicit Attempt(const Protocol& protocol) : protocol_(protocol) {}
  virtual ~Attempt() = default;

  // Call before the first attempt. Text that is received counts against this pool.
  void charge_to(BlockPool& pool) { pool_ = &pool; }
  // Called for every attempt, with a cleared request.
  virtual void build(HttpRequest& request) = 0;
  virtual std::string url() const = 0;
  // What the present request will bring, if it may also be sent over another connection while the
  // first one is waited for: it changes nothing, and only one of the answers is taken.
  virtual std::optional<ExpectedAnswer> hedgeable() const { return std::nullopt; }
  // Whether, if the present body breaks off, the next request asks for nothing that has come.
  virtual bool resumes() const { return false; }
  // While there is one, it has to let the head of the response pass. Borrowed.
  void set_gate(HeadGate* gate) { gate_ = gate; }
  // Called once the whole response has been taken.
  Result<Verdict> end();
  // Called if the attempt failed, will be retried, and may have reached the server.
  virtual void will_retry() {}
  // Whether the attempt failed since its bytes arrived damaged, so that the server made no object.
  virtual bool arrived_spoilt() const { return false; }
  // Whether the caller has another way to get what it asks for. Then what fails is not tried again;
  // it is still redirected, sent over a fresh connection, or with new credentials.
  virtual bool has_alternative() const { return false; }
  // How long to wait for the answer if the operation is stopped after a request was sent whole: the
  // server carries it out, and the answer says what has to be undone.
  virtual std::chrono::milliseconds linger_when_stopped() const { return {}; }

  Result<void> on_head(const ResponseHead& head) final;
  Result<std::span<std::byte>> space(uint64_t outstanding_bytes) final;
  Result<void> on_bytes(size_t count) final;
  // Bytes of accepted bodies received by the present attempt.
  uint64_t body_bytes() const { return body_bytes_; }
  // If the head has said enough: what follows. The body is not taken, which costs the connection.
  std::optional<Verdict> enough() const { return enough_; }
  // How the present attempt was refused; null if it was not.
  const Refusal* refusal() const { return refusal_ ? &*refusal_ : nullptr; }
  const Protocol& protocol() const { return protocol_; }
  // Call before it is sent. `direct`: to a host that the map of the cluster names.
  // `may_do_without`: headers of it may be left out, if they are what is refused. `renews`: a
  // refusal that may be about credentials is answered with new ones first.
  void begin(bool direct, bool may_do_without, bool renews = false) {
    direct_ = direct;
    may_do_without_ = may_do_without;
    renews_ = renews;
    status_ = 0;
    body_bytes_ = 0;
  }
  // Of the present attempt's answer; 0: there is none.
  int status() const { return status_; }
  // When the caller asked for it; zero: that is not known.
  virtual std::chrono::steady_clock::time_point queued() const { return {}; }
  // Whether its refusal means that the store's endpoint has to be asked.
  bool refused_as_direct() const { return refused_as_direct_; }
  // Handles the refusal, once there is nothing (more) to be left out, with this error.
  Result<Verdict> take_refusal(Error error) { return refused(std::move(error)); }
  // Whether it was refused in such a way. Then end() leaves the refusal to take_refusal().
  bool may_do_without() const { return may_do_without_ && refusal_ && refusal_->blames_headers; }
  // The caller has been told of the object: one that is not found may only be so for the moment.
  virtual bool is_known_to_exist() const { return false; }
  // It asks for the map of the cluster, and so cannot wait for one.
  virtual bool asks_for_map() const { return false; }
  // Called on every sweep. True: all that is wanted of the body has come, and its end, for which
  // the connection could be used again, has been waited for long enough.
  virtual bool waits_in_vain(std::chrono::steady_clock::time_point) { return false; }

 protected:
  BlockPool* pool() const { return pool_; }
  virtual bool accepts(int status) const { return status / 100 == 2; }
  virtual Result<void> begin_body(const ResponseHead&) { return {}; }
  // For begin_body() and body_space().
  Result<void> take_no_body(Verdict verdict) {
    enough_ = verdict;
    return fail(Code::kCancelled, "the body is not needed");
  }
  virtual Result<std::span<std::byte>> body_space(uint64_t outstanding_bytes) = 0;
  virtual Result<void> took_body(size_t count) = 0;
  virtual Result<Verdict> finish() = 0;
  virtual void refusal_head(const ResponseHead&) {}
  // How an answer with a good status says no after all; none: it does not.
  virtual std::optional<Refusal> late_refusal() const { return std::nullopt; }
  ErrorResponse error_response(std::string_view body) const {
    return {
        .head = head_.head(), .body = body, .of_removal = removes(), .of_replacement = replaces()};
  }
  virtual bool removes() const { return false; }   // so that a refusal is about the object
  virtual bool replaces() const { return false; }  // one known generation
  // Handles a refusal; by default it is the operation's error.
  virtual Result<Verdict> refused(Error error) { return std::unexpected(std::move(error)); }

 private:
  static constexpr size_t kMaxRefusalBytes = 16 * 1024;

  const Protocol& protocol_;
  BlockPool* pool_ = nullptr;
  HeadGate* gate_ = nullptr;
  // As bits: attempts are part of the frames of reads, which are recycled up to 1 KiB.
  bool accepted_ : 1 = false;
  bool direct_ : 1 = false, refused_as_direct_ : 1 = false;
  bool may_do_without_ : 1 = false;
  bool renews_ : 1 = false;
  std::optional<Verdict> enough_;
  uint16_t refusal_filled_ = 0;  // of `refusal_text_`
  uint16_t status_ = 0;
  uint64_t body_bytes_ = 0;
  std::optional<Refusal> refusal_;
  std::string refusal_text_;  // its body

 protected:
  OwnedHead head_;  // of a refusal, or of a text that was accepted
};

// An attempt whose accepted body is text, taken whole. Memory is allocated for what arrives, not
// for what the head announces, and counts against the pool while the attempt lives. An answer may
// take up to a quarter of the budget, but always 1 MiB, so that memory held by the user cannot make
// a listing fail.
class TextAttempt : public Attempt {
 public:
  using Attempt::Attempt;

 protected:
  // That an answer may have.
  uint64_t most_bytes() const;
  std::string_view text() const { return std::string_view(text_).substr(0, filled_); }
  Response response() const { return {.head = head_.head(), .body = text()}; }
  // The object that a stat has found, with its name relative to the root.
  Result<ObjectInfo> found_object(std::string_view name) const {
    return below_root(protocol().parse_stat(response(), name));
  }
  // Makes a full name relative to the root.
  Result<ObjectInfo> below_root(Result<ObjectInfo> info) const;
  Result<void> begin_body(const ResponseHead& head) override;
  Result<std::span<std::byte>> body_space(uint64_t outstanding_bytes) override;
  Result<void> took_body(size_t count) override;
  // Whether nothing of the body of the present answer is read. Then one that is not the service's
  // says that something else has answered, and whether the request was carried out is not known.
  virtual bool ignores_body() const { return false; }
  std::optional<Refusal> late_refusal() const override;

 private:
  static constexpr uint64_t kMaxTextBytes = 64 * kMiB;
  static constexpr uint64_t kAlwaysBytes = 1 * kMiB;
  void resize(uint64_t size_bytes);

  std::string text_;
  size_t filled_ = 0;
  std::optional<Charge> charge_;
};

}  // namespace headrace
