#include "headrace/store/transfer/admission_queue.h"

#include <algorithm>
#include <random>

#include "headrace/store/transfer/piece_reader.h"

namespace headrace {

AdmissionQueue::AdmissionQueue(Lane& lane, ReadOrder& order, BlockPool& pool, Metrics& metrics,
                               uint32_t lane_index, Rng& rng)
    : lane_(lane),
      order_(order),
      pool_(pool),
      metrics_(metrics),
      lane_index_(lane_index),
      rng_(rng),
      pieces_(order, pool, metrics, lane_index) {}

AdmissionQueue::~AdmissionQueue() = default;

void AdmissionQueue::stop() {
  if (std::exchange(stopped_, true)) return;
  pieces_.stop();
  for (Line& line : lines_) line.pieces.stop();
}

void AdmissionQueue::pump(TimePoint now) {
  if (std::exchange(pumping_, true)) return;  // a reader that needed no wait came back here
  // A reader takes its piece when it starts, here or later. Either way one reader per queued piece
  // is enough, and a reader that finds nothing ends.
  size_t startable = pieces_.size();
  while (true) {
    const bool line_first = !lines_.empty() && !last_was_line_;
    if (line_first && serve_lines(now)) {
      last_was_line_ = true;
      continue;
    }
    const bool has_permit = has_free_permit();
    const bool may_read = has_permit && startable > 0 && pieces_.may_take();
    if (may_read && (waiting_.empty() || next_is_reader(reader_count_))) {
      --startable;
      ++reader_count_;
      last_was_reader_ = true;
      last_was_line_ = false;
      lane_.start_reader({});
    } else if (!waiting_.empty() && (has_permit || limit_lifted_)) {
      last_was_reader_ = waiting_.front()->reads_;
      last_was_line_ = false;
      grant(*waiting_.front());
    } else if (lines_.empty() || line_first || !serve_lines(now)) {
      break;
    }
  }
  std::erase_if(lines_, [](const Line& line) {
    if (line.idle() && line.turn) line.pace->give_back();
    return line.idle();
  });
  pumping_ = false;
}

// Whether a reader gets the next permit if requests of both kinds want it.
bool AdmissionQueue::next_is_reader(uint32_t other_readers) const {
  if (other_readers != other_count_) return other_readers < other_count_;
  return !last_was_reader_;
}

// ── Requests ─────────────────────────────────────────────────────────────────────────────────

void AdmissionQueue::admit(Request& request, const std::shared_ptr<Pace>& pace,
                           std::function<void()> then, TimePoint now) {
  const bool has_begun = request.held_ || request.is_paced();
  if (!pace->refused()) {
    enter(request, waiting_);
  } else if (Line& line = line_of(pace); has_begun) {
    enter(request, line.returning);
    begin_in(request, line);
    give_up(request);
  } else {
    enter(request, line.others);
  }
  request.pace_ = pace.get();
  pump(now);
  if (request.held_) return;
  if (!pace->refused()) was_limited_ = true;
  request.then_ = std::move(then);
}

void AdmissionQueue::withdraw(Request& request) {
  if (request.list_ != nullptr) request.list_->erase(request.at_);
  request.list_ = nullptr;
  request.then_ = nullptr;
}

void AdmissionQueue::step_aside(Request& request, const std::shared_ptr<Pace>& pace,
                                TimePoint now) {
  begin_in(request, line_of(pace));
  if (give_up(request)) pump(now);
}

void AdmissionQueue::finish(Request& request, TimePoint now) {
  const bool left = give_up(request) || request.is_paced();
  if (request.is_paced()) --std::exchange(request.line_, nullptr)->begun;
  if (left && somebody_waits()) pump(now);
}

void AdmissionQueue::enter(Request& request, Request::List& list) {
  request.at_ = list.insert(list.end(), &request);
  request.list_ = &list;
}

void AdmissionQueue::begin_in(Request& request, Line& line) {
  if (!request.is_paced()) ++line.begun;
  request.line_ = &line;
}

// Whether it had a permit or an unused turn.
bool AdmissionQueue::give_up(Request& request) {
  const bool unused = request.use_turn();
  if (unused) {
    request.line_->pace->give_back();
    request.line_->ask_again = {};
  }
  const bool held = std::exchange(request.held_, false);
  if (held) --count_of(request);
  return held || unused;
}

// With a turn if it comes from a line.
void AdmissionQueue::grant(Request& request, Line* line) {
  const std::function<void()> then = std::move(request.then_);
  withdraw(request);
  if (line != nullptr) begin_in(request, *line);
  request.has_turn_ = line != nullptr;
  request.held_ = true;
  ++count_of(request);
  if (then) then();
}

// ── Readers ──────────────────────────────────────────────────────────────────────────────────

void AdmissionQueue::begin_reader(Request& request, const Lane::Begin& begin) {
  request.held_ = true;
  request.line_ = begin.line;
  request.has_turn_ = begin.line != nullptr;
}

ReadPiece* AdmissionQueue::next_piece(bool has_read, TimePoint now) {
  if (has_read) {
    if (!pieces_.empty() || !waiting_.empty()) {
      if (has_free_permit()) {
        pump(now);
      } else {
        was_limited_ = true;
      }
    }
    // Is it somebody else's turn? Checked after a piece, so that every turn reads at least one.
    if (!waiting_.empty() && !next_is_reader(reader_count_ - 1)) return nullptr;
    if (!lines_.empty() && !last_was_line_ && a_line_is_due(now)) return nullptr;
    last_was_reader_ = true;
    last_was_line_ = false;
  }
  return permits_taken() <= lane_.permit_limit() || stopped_ ? pieces_.take() : nullptr;
}

PieceQueue& AdmissionQueue::pieces_like(const ReadPiece& piece) {
  const std::shared_ptr<Pace>& pace = piece.reader->pace();
  return pace->refused() ? line_of(pace).pieces : pieces_;
}

void AdmissionQueue::waited_for(const ReadBatch& batch) {
  pieces_.waited_for(batch);
  for (Line& line : lines_) line.pieces.waited_for(batch);
}

PieceList AdmissionQueue::drop(const ReadBatch& batch) {
  PieceList dropped = pieces_.drop(batch);
  for (Line& line : lines_) dropped.append(line.pieces.drop(batch));
  return dropped;
}

// ── Roots that have been throttled ───────────────────────────────────────────────────────────

AdmissionQueue::Line& AdmissionQueue::line_of(const std::shared_ptr<Pace>& pace) {
  for (Line& line : lines_) {
    if (line.pace == pace) return line;
  }
  Line& line = lines_.emplace_back(pace, order_, pool_, metrics_, lane_index_);
  if (stopped_) line.pieces.stop();
  return line;
}

// Whether it has a request that may begin, given a turn, a permit and memory.
bool AdmissionQueue::wants_turn(const Line& line) const {
  if (!line.returning.empty()) return true;
  if (limit_lifted_ && !line.others.empty()) return true;
  return line.begun < lane_.permit_limit() && line.has_more();
}

bool AdmissionQueue::has_turn(Line& line, TimePoint now) {
  if (stopped_) return true;  // nothing is sent any more
  if (!line.turn && line.ask_again <= now) {
    line.turn = line.pace->reserve(now);
    // At random, or the lane that happens to ask first would do so again and again.
    std::uniform_real_distribution<> share(0.5, 1);
    if (!line.turn) {
      line.ask_again =
          now + std::chrono::duration_cast<TimePoint::duration>(share(rng_) * Pace::kHorizon);
    }
  }
  return line.turn && *line.turn <= now;
}

// Begins one request of a line whose turn has come. False if there is none.
bool AdmissionQueue::serve_lines(TimePoint now) {
  std::optional<TimePoint> look_again;
  for (auto at = lines_.begin(); at != lines_.end(); ++at) {
    Line& line = *at;
    if (!wants_turn(line)) {
      // If all permits are taken, the limit holds its next request back, not the pace.
      if (line.has_more() && !has_free_permit()) was_limited_ = true;
      continue;
    }
    if (!has_turn(line, now)) {
      const auto next = line.turn.value_or(line.ask_again);
      look_again = std::min(look_again.value_or(next), next);
      continue;
    }
    // Used up before: a request that turns out to need none gives it back at once.
    const auto turn = std::exchange(line.turn, std::nullopt);
    if (begin_next(line)) {
      lines_.splice(lines_.end(), lines_, at);
      return true;
    }
    line.turn = turn;
  }
  if (look_again) lane_.pump_at(*look_again);
  return false;
}

bool AdmissionQueue::begin_next(Line& line) {
  const bool has_permit = has_free_permit();
  line.waits_for_memory = false;
  if (!has_permit) was_limited_ = true;
  if (limit_lifted_) {
    for (Request::List* const list : {&line.returning, &line.others}) {
      const auto found = std::ranges::find(*list, false, &Request::reads_);
      if (found == list->end()) continue;
      grant(**found, &line);
      return true;
    }
  }
  if (!has_permit) return false;
  if (!line.returning.empty()) {
    grant(*line.returning.front(), &line);
    return true;
  }
  if (line.others.empty() || !line.last_was_piece) {
    if (ReadPiece* const piece = line.pieces.take()) {
      line.last_was_piece = true;
      ++reader_count_;
      ++line.begun;
      lane_.start_reader({.line = &line, .piece = piece});
      return true;
    }
    line.waits_for_memory = !line.pieces.empty();
  }
  if (line.others.empty()) return false;
  line.last_was_piece = false;
  grant(*line.others.front(), &line);
  return true;
}

bool AdmissionQueue::a_line_is_due(TimePoint now) const {
  return std::ranges::any_of(lines_, [&](const Line& line) {
    return line.turn && *line.turn <= now && !line.waits_for_memory && wants_turn(line);
  });
}

void AdmissionQueue::set_apart(const std::shared_ptr<Pace>& pace, TimePoint now) {
  Line& line = line_of(pace);
  pieces_.move_to(line.pieces, [&](const PieceReader& reader) { return reader.pace() == pace; });
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    Request& request = **at++;
    if (request.pace_ != pace.get()) continue;
    line.others.splice(line.others.end(), waiting_, request.at_);
    request.list_ = &line.others;
  }
  pump(now);
}

}  // namespace headrace
