// Which request begins next in one lane of a host.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <utility>

#include "headrace/base/block_pool.h"
#include "headrace/base/metrics.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/transfer/pace.h"
#include "headrace/store/transfer/piece_queue.h"
#include "headrace/store/transfer/retry.h"

namespace headrace {

// Gives out a lane's permits for requests in flight: admit() a request, and finish() it. Pieces of
// reads have no request here until they begin: the lane starts a reader, which reads one piece
// after another while it is its turn. When permits are short, readers and other requests get at
// least half of them each. So do all throttled roots together, and all other roots. Requests of
// throttled roots wait in lines, where each piece has a reader of its own, until their root's pace
// grants a turn.
// Time is an argument; no I/O. Thread: confined. Borrows all arguments.
class AdmissionQueue {
  struct Line;

 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Lives until it is finished.
  class Request {
   public:
    explicit Request(bool reads) : reads_(reads) {}
    Request(const Request&) = delete;
    Request& operator=(const Request&) = delete;

    // It has a permit.
    bool is_admitted() const { return held_; }
    bool is_paced() const { return line_ != nullptr; }
    // Whether its permit came with a turn. Uses the turn up.
    bool use_turn() { return std::exchange(has_turn_, false); }

   private:
    friend class AdmissionQueue;
    using List = std::list<Request*>;

    const bool reads_;  // pieces; others: writes, pages of listings, deletes
    bool held_ = false, has_turn_ = false;
    Line* line_ = nullptr;  // in which it has begun
    // While it waits:
    std::function<void()> then_ = {};
    const Pace* pace_ = nullptr;
    List* list_ = nullptr;
    List::iterator at_ = {};
  };

  // What the queue asks of its lane.
  class Lane {
   public:
    virtual uint32_t permit_limit() const = 0;
    // Those of them that hedges have.
    virtual uint32_t hedge_permits() const = 0;
    // Has a reader call begin_reader() with `begin`, now or later, once.
    struct Begin {
      Line* line = nullptr;
      ReadPiece* piece = nullptr;
    };
    virtual void start_reader(Begin begin) = 0;
    // Calls pump() then, at the latest.
    virtual void pump_at(TimePoint at) = 0;

   protected:
    ~Lane() = default;
  };

  AdmissionQueue(Lane& lane, ReadOrder& order, BlockPool& pool, Metrics& metrics,
                 uint32_t lane_index, Rng& rng);
  ~AdmissionQueue();
  AdmissionQueue(const AdmissionQueue&) = delete;
  AdmissionQueue& operator=(const AdmissionQueue&) = delete;

  // Calls `then` once the request has a permit (and a turn, if its root is paced), unless it has
  // one when this returns. While it waits, it holds none.
  void admit(Request& request, const std::shared_ptr<Pace>& pace, std::function<void()> then,
             TimePoint now);
  // The request stops waiting, admitted or not.
  static void withdraw(Request& request);
  // The request was refused at this pace: gives up its permit until it is admitted again.
  void step_aside(Request& request, const std::shared_ptr<Pace>& pace, TimePoint now);
  // For good. A turn that was not used is for the next request.
  void finish(Request& request, TimePoint now);

  // Makes it the request of a reader that the queue has asked for.
  static void begin_reader(Request& request, const Lane::Begin& begin);
  // The next piece of a reader that is not paced; null: its turn is over.
  ReadPiece* next_piece(bool has_read, TimePoint now);

  // Pieces that wait: see PieceQueue. Call pump() then.
  PieceQueue& pieces_like(const ReadPiece& piece);
  void waited_for(const ReadBatch& batch);
  PieceList drop(const ReadBatch& batch);

  // Admits as many as limit, memory and pace allow.
  void pump(TimePoint now);
  // The root has been throttled for the first time: moves its waiting requests to a line of their
  // own.
  void set_apart(const std::shared_ptr<Pace>& pace, TimePoint now);
  // From now on only reads are limited.
  void lift_limit() { limit_lifted_ = true; }
  // The engine stops: nothing is sent any more.
  void stop();

  uint32_t permits_taken() const { return reader_count_ + other_count_ + lane_.hedge_permits(); }
  bool has_free_permit() const { return permits_taken() < lane_.permit_limit(); }
  bool somebody_waits() const { return !pieces_.empty() || !waiting_.empty() || !lines_.empty(); }
  // Whether the limit has held a request back since this was last asked.
  bool was_limited() { return std::exchange(was_limited_, false); }

 private:
  // The requests of one throttled root. Those that wait to be sent again count as if they still
  // held their permits, so that no more begin than the limit allows. Only requests that were in
  // flight when the first was refused may exceed it.
  struct Line {
    Line(std::shared_ptr<Pace> pace, ReadOrder& order, BlockPool& pool, Metrics& metrics,
         uint32_t lane_index)
        : pace(std::move(pace)), pieces(order, pool, metrics, lane_index) {}

    bool has_more() const { return !others.empty() || !pieces.empty(); }
    bool idle() const { return begun == 0 && !has_more(); }

    const std::shared_ptr<Pace> pace;
    Request::List returning;  // to be sent again: first
    Request::List others;     // not yet begun, as are the pieces
    PieceQueue pieces;
    bool last_was_piece = false;
    uint32_t begun = 0;  // requests, with or without a permit
    bool waits_for_memory = false;
    // When the next request may be sent; none: when to ask for a turn again.
    std::optional<TimePoint> turn;
    TimePoint ask_again{};
  };

  uint32_t& count_of(const Request& request) {
    return request.reads_ ? reader_count_ : other_count_;
  }
  bool next_is_reader(uint32_t other_readers) const;
  static void enter(Request& request, Request::List& list);
  static void begin_in(Request& request, Line& line);
  bool give_up(Request& request);
  void grant(Request& request, Line* line = nullptr);
  Line& line_of(const std::shared_ptr<Pace>& pace);
  bool wants_turn(const Line& line) const;
  bool has_turn(Line& line, TimePoint now);
  bool serve_lines(TimePoint now);
  bool begin_next(Line& line);
  bool a_line_is_due(TimePoint now) const;

  Lane& lane_;
  ReadOrder& order_;
  BlockPool& pool_;
  Metrics& metrics_;
  const uint32_t lane_index_;
  Rng& rng_;
  PieceQueue pieces_;
  uint32_t reader_count_ = 0, other_count_ = 0;  // permits taken
  Request::List waiting_;                        // in order
  std::list<Line> lines_;                        // the one served last is at the end
  bool last_was_reader_ = false;                 // whether a reader got the last permit
  bool last_was_line_ = false;                   // whether a line got it
  bool was_limited_ = false;
  bool limit_lifted_ = false;
  bool stopped_ = false;
  bool pumping_ = false;
};

}  // namespace headrace
