#include "headrace/store/http_store.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <algorithm>
#include <optional>
#include <utility>

#include "headrace/base/ascii.h"
#include "headrace/format/gunzip.h"
#include "headrace/store/listing/list_attempts.h"
#include "headrace/store/reading/batch_get_attempt.h"
#include "headrace/store/reading/slot_memory.h"
#include "headrace/store/writing/multipart_attempts.h"
#include "headrace/store/writing/multipart_upload.h"
#include "headrace/store/writing/object_writer.h"
#include "headrace/store/writing/part_objects.h"
#include "headrace/store/writing/probed_upload.h"
#include "headrace/store/writing/rename_attempt.h"
#include "headrace/store/writing/resumable_upload.h"
#include "headrace/store/writing/server_copy.h"
#include "headrace/store/writing/server_rename.h"
#include "headrace/store/writing/write_attempts.h"

namespace headrace {
namespace {

constexpr const char* kEmptyName = "an object's name must not be empty";
constexpr const char* kSameName = "it has this name already";

Error cancelled() { return Error(Code::kCancelled, "the read was cancelled"); }

// Sends nothing, and only waits.
class Waiting final : public Activity {
 public:
  using Activity::Activity;

 private:
  void interrupt(const Error&) override {}
  void sweep(std::chrono::steady_clock::time_point) override {}
};

}  // namespace

HttpStore::HttpStore(std::shared_ptr<const EngineResources> engine, std::shared_ptr<Host> host,
                     std::shared_ptr<Pace> pace, std::unique_ptr<const Protocol> protocol,
                     const StoreOptions& options, const Reach& reach,
                     std::shared_ptr<HttpStore> bucket)
    : engine_(std::move(engine)),
      host_(std::move(host)),
      pace_(std::move(pace)),
      protocol_(std::move(protocol)),
      bucket_(std::move(bucket)),
      learned_(host_->buckets.of((bucket_ ? *bucket_->protocol_ : *protocol_).url_of(""))),
      temporaries_(options.temporary_prefix),
      rules_{.range_threshold_bytes = options.range_threshold_bytes,
             .range_bytes = options.range_bytes,
             .content_encoding = options.content_encoding,
             .verify = options.verify,
             .end_is_told = host_->route->endpoint.tls,
             .learned = learned_},
      // What comes transformed has no ranges that could be joined.
      join_rules_{.max_gap_bytes = protocol_->transforms() ? std::nullopt : options.max_gap_bytes,
                  .max_joined_bytes = std::min(kMaxJoinedBytes, options.range_threshold_bytes),
                  .verify = options.verify},
      on_change_(options.on_change),
      write_limits_(options.write_limits) {
  for (size_t i = 0; i < engine_->io_threads.size(); ++i) {
    contexts_.push_back(std::make_unique<StoreContext>(
        StoreContext{.retry = options.retry,
                     .timeout = options.timeout,
                     .credentials = options.credentials,
                     .signer = options.credentials ? protocol_->make_signer() : nullptr,
                     .reach = [reach, i](const Endpoint& at) -> Result<HostLane*> {
                       const Result<std::shared_ptr<Host>> host = reach(at);
                       if (!host) return std::unexpected(host.error());
                       return (*host)->lanes[i].get();
                     },
                     .pace = pace_,
                     .learned = learned_,
                     .fetch_map = [this] { fetch_map(); },
                     .hedge = options.hedge,
                     .gate = engine_->gate}));
  }
}

HttpStore::~HttpStore() = default;

// ── Reading ──────────────────────────────────────────────────────────────────────────────────

void HttpStore::read(std::shared_ptr<ReadBatch> batch) {
  batch = join_ranges(std::move(batch), shared_from_this(), join_rules_);
  std::shared_ptr<Gate::Pass> pass = engine_->gate->enter();
  // This function keeps the pass and the store alive until the batch releases it.
  batch->hand_over([self = shared_from_this(), weak = std::weak_ptr(batch), pass] {
    if (const std::shared_ptr<ReadBatch> alive = weak.lock()) self->on_wait_or_cancel(alive);
  });
  const size_t lane_count = host_->lanes.size();
  std::vector<ReadPiece*> firsts(lane_count, nullptr), lasts(lane_count, nullptr);
  const uint32_t rotation = next_lane_.fetch_add(1, std::memory_order_relaxed);
  const size_t slot_count = batch->size();
  size_t dealt_count = 0;
  const auto lane_of = [&](size_t i) { return static_cast<uint32_t>((i + rotation) % lane_count); };
  for (size_t i = 0; i < slot_count; ++i) {
    ReadSlot& slot = batch->slot(i);
    std::optional<Error> refused;
    if (pass == nullptr) refused = Error(Code::kCancelled, "the engine was stopped");
    if (slot.name_size == 0) refused = Error(Code::kInvalidArgument, kEmptyName);
    if (refused) {
      batch->set_error(slot, std::move(*refused).with_url(url_of(batch->name(slot))));
      batch->slot_done();
      continue;
    }
    if (protocol_->transforms()) batch->forget_listing(slot);
    ReadPiece& piece = slot.first_piece;
    piece.reader = this;
    // Neighbours in the batch go to different threads, so that the batch is done as soon as
    // possible.
    const uint32_t lane = lane_of(i);
    (lasts[lane] != nullptr ? lasts[lane]->next : firsts[lane]) = &piece;
    lasts[lane] = &piece;
    ++dealt_count;
  }
  // Before the first lane may start: from then on the batch may end at any moment.
  if (dealt_count > 0) {
    batch->deal(static_cast<uint32_t>(lane_count), [&](size_t i) {
      return batch->slot(i).first_piece.reader == this ? lane_of(i) : ReadSlot::kNoLane;
    });
    host_->reads.queued_changed(*batch);
  }
  for (size_t i = 0; i < lane_count; ++i) {
    if (firsts[i] == nullptr) continue;
    HostLane* lane = host_->lanes[i].get();
    lane->thread().post([lane, first = firsts[i]] {
      lane->add(first);
      lane->pump();
    });
  }
}

void HttpStore::expect_reads(uint32_t count) {
  // Those reads go to other hosts, or wait for their turns.
  if (protocol_->placement() != nullptr || protocol_->moved_to() != nullptr) return;
  if (pace_->refused()) return;
  const uint64_t each_bytes = std::max<uint64_t>(expected_object_bytes(), 1);
  const uint64_t fitting = std::max<uint64_t>(engine_->pool->budget_bytes() / each_bytes, 1);
  const auto wanted = static_cast<uint32_t>(std::min<uint64_t>(count, fitting));
  const std::shared_ptr<Gate::Pass> pass = engine_->gate->enter();
  if (pass == nullptr) return;
  const auto lane_count = static_cast<uint32_t>(host_->lanes.size());
  for (uint32_t i = 0; i < lane_count; ++i) {
    const uint32_t share = wanted / lane_count + (i < wanted % lane_count ? 1 : 0);
    HostLane* const lane = host_->lanes[i].get();
    lane->thread().post([lane, share, pass] { lane->open_ahead(share); });
  }
}

// The batch is waited for now, or cancelled.
void HttpStore::on_wait_or_cancel(const std::shared_ptr<ReadBatch>& batch) {
  if (engine_->decompressions_waiting.load(std::memory_order_seq_cst) > 0) {
    engine_->compute->wake();
  }
  // Whether a batch is waited for matters only if pieces are set aside for lack of memory.
  if (!batch->cancelled() && !host_->reads.short_of_memory()) return;
  for (const std::unique_ptr<HostLane>& owned : host_->lanes) {
    HostLane* lane = owned.get();
    lane->thread().post([self = shared_from_this(), lane, batch] {
      if (batch->cancelled()) {
        lane->thread().stop_owned_by(batch.get(), cancelled());
        self->fail_all(*lane, lane->drop(*batch), cancelled());
      } else {
        lane->waited_for(*batch);
      }
      lane->pump();
    });
  }
}

void HttpStore::fail_all(HostLane& lane, ReadPiece* first, const Error& error) {
  ReadPiece* next = nullptr;
  for (ReadPiece* piece = first; piece != nullptr; piece = next) {
    next = piece->next;
    piece_failed(lane, *piece, error);
  }
}

// Deals pieces out to all lanes, so that every I/O thread reads part of a large object.
void HttpStore::spread(HostLane& lane, ReadPiece* pieces) {
  if (pieces != nullptr) pieces->batch->take_from_lane(pieces->batch->slot(pieces->slot_index));
  const size_t lane_count = host_->lanes.size();
  std::vector<ReadPiece*> firsts(lane_count, nullptr), lasts(lane_count, nullptr);
  for (size_t i = lane.thread().index(); pieces != nullptr; ++i) {
    ReadPiece* piece = std::exchange(pieces, pieces->next);
    piece->next = nullptr;
    const size_t to = (i + 1) % lane_count;
    (lasts[to] != nullptr ? lasts[to]->next : firsts[to]) = piece;
    lasts[to] = piece;
  }
  for (size_t i = 0; i < lane_count; ++i) {
    if (firsts[i] == nullptr) continue;
    HostLane* to = host_->lanes[i].get();
    to->thread().post([self = shared_from_this(), to, first = firsts[i]] {
      if (first->batch->cancelled()) {  // this lane may have dropped its pieces already
        self->fail_all(*to, first, cancelled());
      } else {
        to->add_in_front(first);
      }
      to->pump();
    });
  }
}

awaitable<void> HttpStore::read_piece(Slot& request_slot, ReadPiece& piece, HttpRequest& request) {
  HostLane& lane = request_slot.lane();
  ReadBatch& batch = *piece.batch;
  ReadSlot& slot = batch.slot(piece.slot_index);
  if (batch.cancelled()) {
    piece_failed(lane, piece, cancelled());
    co_return;
  }
  if (lane.thread().stopping()) {  // it must not wait for memory, whose owners need this thread
    piece_failed(lane, piece, Error(Code::kCancelled, "the engine was stopped"));
    co_return;
  }
  if (slot.failed.load(std::memory_order_acquire)) {  // another piece has spoilt it
    piece_done(lane, piece);
    co_return;
  }
  const bool lead = &piece == &slot.first_piece;
  if (lead) {
    Result<void> ready = prepare(lane, slot, piece);
    if (!ready && is_deferral(ready.error())) {
      defer(lane, piece);
      co_return;
    }
    if (!ready) {
      piece_failed(lane, piece, std::move(ready.error()));
      co_return;
    }
  }

  Operation operation(request_slot, *contexts_[lane.thread().index()], &batch);
  ReadAttempt attempt(*protocol_, rules_, lane.pool(), slot, piece);
  attempt.on_split = [this, &lane](ReadPiece* pieces) { spread(lane, pieces); };
  Result<void> done = co_await operation.run(attempt, request);
  if (!done && is_deferral(done.error())) {
    defer(lane, piece);
    co_return;
  }
  if (!done) batch.set_error(slot, std::move(done.error()));
  tally(lane.thread().metrics().bytes_read_total, piece.received_bytes);
  piece_done(lane, piece);
}

void HttpStore::defer(HostLane& lane, ReadPiece& piece) {
  // Before its reservation becomes free, so that others leave the room to the older batch.
  lane.add_again(piece);
  drop_reservation(lane.pool(), piece.batch->slot(piece.slot_index));
}

// What can be done before the first request of a slot.
Result<void> HttpStore::prepare(HostLane& lane, ReadSlot& slot, ReadPiece& lead) {
  if (Result<void> limited = slot.limit_to(slot.object_bytes); !limited) return limited;
  // A sum that is not compared must not keep away the one that the store tells.
  if (!compares(rules_.verify, slot.expected.kind())) slot.expected = {};
  const bool size_known = slot.object_bytes != kUnknownSize;
  const uint64_t wanted = slot.range.size_bytes();
  if (size_known) {
    if (Result<void> fits = slot.check_destination(); !fits) return fits;
    if (Result<void> room = make_room(lane.pool(), slot, wanted, lead.batch->waited_for()); !room) {
      return std::unexpected(std::move(room.error()));
    }
  }
  if (wanted > rules_.range_threshold_bytes && slot.piece_count == 1) {
    if (size_known && slot.generation_size > 0 &&
        !ReadAttempt::lacks_sum(*protocol_, rules_, slot)) {
      // Written before the pieces are given to other threads, where they only compare it.
      slot.found_generation.assign(lead.batch->generation(slot));
      slot.choose_running_kind(protocol_->sum_told_with_parts());
      spread(lane, slot.split(rules_.range_bytes, rules_.range_bytes));
    } else {
      // All pieces must be of one generation. The lead's answer tells which; then the rest is split
      // off.
      lead.range.end = kUnknownSize;
    }
  }
  return {};
}

void HttpStore::piece_failed(HostLane& lane, ReadPiece& piece, Error error) {
  ReadSlot& slot = piece.batch->slot(piece.slot_index);
  piece.batch->set_error(slot, std::move(error).with_url(url_of(piece.batch->name(slot))));
  piece_done(lane, piece);
}

void HttpStore::piece_done(HostLane& lane, ReadPiece& piece) {
  ReadSlot& slot = piece.batch->slot(piece.slot_index);
  if (slot.piece_count == 1 || slot.pieces_left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    slot_done(lane, *piece.batch, slot);
  }
}

bool HttpStore::should_restart(const ReadSlot& slot) const {
  if (!slot.error) return false;
  // A bad transfer is tried once more; a bad object will be bad again.
  if (slot.error->code() == Code::kCorrupt) return slot.restarts == 0;
  return slot.error->code() == Code::kPreconditionFailed && on_change_ == OnChange::kReread &&
         slot.restarts < 3;
}

void HttpStore::not_compared(std::string_view name, ChecksumKind kind) {
  host_->log.unverified([&] { return url_of(name); }, kind);
}

Result<void> HttpStore::verify(const ReadBatch& batch, ReadSlot& slot, const Checksum& sum,
                               Metrics& metrics) {
  if (slot.scatter) {
    tally(metrics.checksums_verified_total, slot.scatter->compare());
    return {};
  }
  const Checksum& expected = slot.expected_sum();
  if (!compares(rules_.verify, expected.kind())) {
    if (rules_.verify != Verify::kNone && slot.whole && !slot.into.empty()) {
      host_->log.unverified([&] { return url_of(batch.name(slot)); }, expected.kind());
    }
    return {};
  }
  if (sum != expected) {
    return corrupt("the bytes that came have ", label(sum.kind()), " ", to_base64(sum),
                   slot.whole ? ", the object has " : ", the index says ", to_base64(expected));
  }
  tally(metrics.checksums_verified_total);
  return {};
}

void HttpStore::slot_done(HostLane& lane, ReadBatch& batch, ReadSlot& slot) {
  if (slot.error) return conclude(lane, batch, slot, {});
  const Checksum sum = slot.join_sums();
  const ChecksumKind kind = slot.expected_sum().kind();
  if (kind == sum.kind() || !compares(rules_.verify, kind)) return conclude(lane, batch, slot, sum);
  if (kind == ChecksumKind::kXxh64 && slot.into.size() <= kSumAtOnceBytes) {
    return conclude(lane, batch, slot, sum_of(kind, slot.into));
  }
  // A digest takes longer than the bytes took to come: not on a thread that others wait for.
  const bool posted = engine_->compute->post(
      [self = shared_from_this(), alive = batch.shared_from_this(), &lane, &slot, kind] {
        const bool stops = self->engine_->stopping.load();
        if (stops || alive->cancelled()) {
          lane.thread().post(
              [self, alive, &lane, &slot, stops] { self->give_up(lane, *alive, slot, stops); });
          return;
        }
        const Checksum digest = sum_of(kind, slot.into);
        lane.thread().post(
            [self, alive, &lane, &slot, digest] { self->conclude(lane, *alive, slot, digest); });
      });
  if (!posted) give_up(lane, batch, slot, /*stops=*/true);
}

void HttpStore::give_up(HostLane& lane, ReadBatch& batch, ReadSlot& slot, bool stops) {
  Error error = stops ? Error(Code::kCancelled, "the engine was stopped") : cancelled();
  batch.set_error(slot, std::move(error).with_url(url_of(batch.name(slot))));
  conclude(lane, batch, slot, {});
}

// `sum`: of the bytes that came, of the kind that is expected.
void HttpStore::conclude(HostLane& lane, ReadBatch& batch, ReadSlot& slot, const Checksum& sum) {
  if (!slot.error) {
    if (Result<void> good = verify(batch, slot, sum, lane.thread().metrics()); !good) {
      // At least one for each piece, each time.
      batch.set_error(slot,
                      std::move(good.error())
                          .with_url(url_of(batch.name(slot)))
                          .with_attempts(static_cast<int>((slot.restarts + 1) * slot.piece_count)));
    }
  }
  if (!slot.error) host_->reads.learn_size(slot.range.size_bytes() / slot.read_count());
  if (slot.error) {
    give_memory_back(lane.pool(), slot);
  } else {
    drop_reservation(lane.pool(), slot);
    end_flight(lane.pool(), slot);
  }
  if (should_restart(slot) && !batch.cancelled()) {
    const bool changed = slot.error->code() == Code::kPreconditionFailed;
    batch.restart(slot, changed);
    lane.add_again(slot.first_piece);
    lane.pump();
    return;
  }
  if (!slot.error) {
    tally(lane.thread().metrics().objects_read_total, slot.read_count());
    if (slot.gzip && rules_.content_encoding == ContentEncoding::kDecompress) {
      batch.take_from_lane(slot);
      const bool posted =
          engine_->compute->post([self = shared_from_this(), alive = batch.shared_from_this(),
                                  &slot] { self->decompress(alive, slot); });
      if (posted) return;
      batch.set_error(slot, Error(Code::kCancelled, "the engine was stopped"));
    }
  }
  if (!batch.ends_lane(slot)) return;
  batch.slot_done();
}

// Memory for the decompressed object. Its size is what the gzip data claims, or is counted if that
// turns out to be wrong. Errors: a deferral if there is no room now.
Result<Block> HttpStore::plain_memory(ReadBatch& batch, ReadSlot& slot) {
  BlockPool& pool = *engine_->pool;
  const std::span<const std::byte> packed = slot.block.bytes();
  uint64_t size_bytes =
      slot.plain_bytes != kUnknownSize ? slot.plain_bytes : gunzipped_bytes_hint(packed);
  if (BlockPool::charged_bytes(size_bytes) > pool.budget_bytes()) {
    const Result<uint64_t> counted = gunzipped_bytes(packed, pool.budget_bytes());
    if (!counted) return std::unexpected(counted.error());
    size_bytes = *counted;
  }
  std::optional<Block> block;
  const auto allocate = [&] {
    const bool at_once = batch.waited_for() || batch.cancelled() || engine_->stopping.load();
    block = at_once ? pool.allocate(size_bytes) : pool.allocate_within_budget(size_bytes);
    return block.has_value();
  };
  if (!try_or_ask_for_room(pool, allocate)) return fail(Code::kExhausted);
  if (size_bytes > 0 && block->data() == nullptr) {
    return fail(Code::kExhausted, "the system has no memory for ", size_bytes, " bytes");
  }
  return std::move(*block);
}

// Runs on a compute thread. If there is no memory it waits, like a read, without occupying the
// thread.
void HttpStore::decompress(std::shared_ptr<ReadBatch> batch, ReadSlot& slot) {
  Result<void> done;
  if (slot.has_into || !slot.whole) {
    done = invalid_argument(
        "it is stored as gzip: it can be decompressed only when it is read "
        "whole and into the engine's memory");
  }
  while (done) {
    ThreadPool& compute = *engine_->compute;
    const uint64_t seen = compute.wake_count();
    // Before checking whether the batch is waited for; want() does these two in the opposite order.
    engine_->decompressions_waiting.fetch_add(1, std::memory_order_seq_cst);
    Result<Block> plain = plain_memory(*batch, slot);
    if (!plain && is_deferral(plain.error())) {
      const bool parked = compute.park(
          [self = shared_from_this(), batch, &slot] {
            self->engine_->decompressions_waiting.fetch_sub(1, std::memory_order_seq_cst);
            self->decompress(batch, slot);
          },
          seen);
      if (parked) return;
      plain = fail(Code::kCancelled, "the engine was stopped");
    }
    engine_->decompressions_waiting.fetch_sub(1, std::memory_order_seq_cst);
    if (!plain) {
      done = std::unexpected(std::move(plain.error()));
      break;
    }
    const Result<uint64_t> size_bytes = gunzip(slot.block.bytes(), plain->bytes());
    const bool lied = size_bytes ? *size_bytes != plain->size_bytes()
                                 : size_bytes.error().code() == Code::kExhausted;
    if (lied && slot.plain_bytes == kUnknownSize) {
      plain->release();
      const Result<uint64_t> counted =
          gunzipped_bytes(slot.block.bytes(), engine_->pool->budget_bytes());
      if (counted) {
        slot.plain_bytes = *counted;
      } else {
        done = std::unexpected(counted.error());
      }
      continue;
    }
    if (size_bytes) {
      slot.block = std::move(*plain);
      slot.into = slot.block.bytes();
    } else {
      done = std::unexpected(size_bytes.error());
    }
    break;
  }
  if (!done) batch->set_error(slot, std::move(done.error()).with_url(url_of(batch->name(slot))));
  batch->slot_done();
}

// As many pages as fit into a quarter of the budget if all are as large as the largest so far.
uint32_t HttpStore::useful_pages_in_flight() const {
  const uint64_t largest_bytes =
      std::max<uint64_t>(1, largest_page_bytes_.load(std::memory_order_relaxed));
  const uint64_t fitting = std::max<uint64_t>(2, engine_->pool->budget_bytes() / 4 / largest_bytes);
  return static_cast<uint32_t>(
      std::min<uint64_t>({protocol_->max_pages_in_flight(), host_->admission.limit(), fitting}));
}

// ── Everything else ──────────────────────────────────────────────────────────────────────────

template <class T, class AttemptType>
awaitable<void> HttpStore::run(std::shared_ptr<HttpStore> self, HostLane& lane,
                               std::shared_ptr<AttemptType> attempt,
                               std::shared_ptr<Pending<T>> pending,
                               [[maybe_unused]] std::shared_ptr<Gate::Pass> pass) {
  RequestSlot slot(lane, pending.get());
  Result<void> done = co_await slot.take(self->pace_);
  if (done) {
    HttpRequest request;
    Operation operation(slot.slot(), *self->contexts_[lane.thread().index()], pending.get());
    if (pending->cancelled()) operation.stop(Error(Code::kCancelled, "it was cancelled"));
    done = co_await operation.run(*attempt, request);
  } else {
    done = std::unexpected(std::move(done.error()).with_url(attempt->url()));
  }
  slot.release();
  Result<T> result = done ? std::move(attempt->result) : Result<T>(std::unexpected(done.error()));
  // Releases what was sent before its owner is told that it may reuse it.
  attempt.reset();
  pending->complete(std::move(result));
}

template <class T, class Prepare>
std::shared_ptr<Pending<T>> HttpStore::spawn(std::string url, bool named, Prepare prepare) {
  auto pending = std::make_shared<Pending<T>>();
  std::shared_ptr<Gate::Pass> pass = engine_->gate->enter();
  std::optional<Error> refused;
  if (pass == nullptr) refused = Error(Code::kCancelled, "the engine was stopped");
  if (!named) refused = Error(Code::kInvalidArgument, kEmptyName);
  if (refused) {
    pending->complete(std::unexpected(std::move(*refused).with_url(std::move(url))));
    return pending;
  }
  HostLane* lane =
      host_->lanes[next_lane_.fetch_add(1, std::memory_order_relaxed) % host_->lanes.size()].get();
  const std::weak_ptr<IoThread> thread = lane->thread().weak_from_this();
  pending->set_on_cancel([thread, owner = pending.get()] {
    if (const std::shared_ptr<IoThread> alive = thread.lock()) {
      alive->stop_owned_by(owner, Error(Code::kCancelled, "it was cancelled"));
    }
  });
  lane->thread().post([self = shared_from_this(), lane, work = prepare(), pending, pass]() mutable {
    asio::co_spawn(lane->thread().context(), work(std::move(self), *lane, pending, std::move(pass)),
                   [pending](std::exception_ptr thrown) {
                     // Out of memory, or a bug: the caller must hear of it, not wait for ever.
                     if (thrown) {
                       pending->complete(fail(Code::kInternal, "an exception ended the request"));
                     }
                   });
  });
  return pending;
}

template <class T, class MakeAttempt>
std::shared_ptr<Pending<T>> HttpStore::start(std::string url, bool named,
                                             MakeAttempt make_attempt) {
  return spawn<T>(std::move(url), named, [&make_attempt] {
    return [attempt = make_attempt()](std::shared_ptr<HttpStore> self, HostLane& lane,
                                      std::shared_ptr<Pending<T>> pending,
                                      std::shared_ptr<Gate::Pass> pass) mutable {
      return run<T>(std::move(self), lane, std::move(attempt), std::move(pending), std::move(pass));
    };
  });
}

std::shared_ptr<Pending<ObjectPage>> HttpStore::list(ListRequest request) {
  const std::string url = url_of(request.prefix);
  return start<ObjectPage>(url, true, [&] {
    return std::make_shared<ListAttempt<ObjectPage>>(*protocol_, temporaries_, std::move(request),
                                                     largest_page_bytes_);
  });
}

std::shared_ptr<Pending<ColumnPage>> HttpStore::list_columns(ListRequest request) {
  const std::string url = url_of(request.prefix);
  return start<ColumnPage>(url, true, [&] {
    return std::make_shared<ListAttempt<ColumnPage>>(*protocol_, temporaries_, std::move(request),
                                                     largest_page_bytes_);
  });
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::stat(std::string name) {
  const std::string url = url_of(name);
  return start<ObjectInfo>(url, !name.empty(), [&] {
    return std::make_shared<StatAttempt>(*protocol_, std::move(name));
  });
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::write(WriteRequest request,
                                                      std::span<const std::byte> bytes) {
  const std::string url = url_of(request.name);
  return start<ObjectInfo>(url, !request.name.empty(), [&] {
    return std::make_shared<WriteAttempt>(*protocol_, std::move(request), bytes,
                                          learned_->conditions, write_sums());
  });
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::write_part(WriteRequest request,
                                                           std::shared_ptr<const UploadPart> part) {
  const std::string url = url_of(request.name);
  return start<ObjectInfo>(url, !request.name.empty(), [&] {
    return std::make_shared<WriteAttempt>(*protocol_, std::move(request), std::move(part),
                                          learned_->conditions, write_sums());
  });
}

std::shared_ptr<SumLadder> HttpStore::sums_from(SumsRecord& record) {
  const UploadSums first = protocol_->first_sums();
  if (first.known) return std::make_shared<SumLadder>(first);
  return std::make_shared<SumLadder>(record.at(std::chrono::steady_clock::now()).value_or(first),
                                     [&record, alive = learned_, host = host_,
                                      url = bucket()->url_of("")](const UploadSums& sums) {
                                       if (record.learn(sums, std::chrono::steady_clock::now())) {
                                         host->log.weaker_sums(url, sums.level);
                                       }
                                     });
}

std::optional<SumLevel> HttpStore::written_sums(bool in_parts) const {
  const UploadSums first = protocol_->first_sums();
  if (first.known) return first.level;
  const SumsRecord& record = in_parts ? learned_->part_sums : learned_->write_sums;
  const std::optional<UploadSums> sums = record.at(std::chrono::steady_clock::now());
  return sums ? std::optional(sums->level) : std::nullopt;
}

std::shared_ptr<SumLadder> HttpStore::part_sums() { return sums_from(learned_->part_sums); }
std::shared_ptr<SumLadder> HttpStore::write_sums() { return sums_from(learned_->write_sums); }

std::shared_ptr<Pending<std::string>> HttpStore::start_multipart(
    WriteRequest request, std::shared_ptr<SumLadder> sums, std::optional<ObjectMetadata> copied) {
  const std::string url = url_of(request.name);
  return start<std::string>(url, !request.name.empty(), [&] {
    return std::make_shared<StartMultipartAttempt>(*protocol_, std::move(request), std::move(sums),
                                                   std::move(copied));
  });
}

std::shared_ptr<Pending<SentPart>> HttpStore::copy_part(CopyRequest request, std::string upload_id,
                                                        std::shared_ptr<const UploadPart> part) {
  const std::string url = url_of(request.name);
  return start<SentPart>(url, !request.name.empty(), [&] {
    return std::make_shared<CopyPartAttempt>(*protocol_, std::move(request), std::move(upload_id),
                                             std::move(part));
  });
}

std::shared_ptr<Pending<SentPart>> HttpStore::send_part(std::string name, std::string upload_id,
                                                        std::shared_ptr<const UploadPart> part,
                                                        std::shared_ptr<SumLadder> sums) {
  const std::string url = url_of(name);
  return start<SentPart>(url, !name.empty(), [&] {
    return std::make_shared<SendPartAttempt>(*protocol_, std::move(name), std::move(upload_id),
                                             std::move(part), std::move(sums), engine_->compute);
  });
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::complete_multipart(
    std::string name, std::string upload_id, std::vector<SentPart> parts, uint64_t size_bytes,
    WholeSums sums, Precondition precondition) {
  const std::string url = url_of(name);
  return start<ObjectInfo>(url, !name.empty(), [&] {
    return std::make_shared<CompleteMultipartAttempt>(
        *protocol_, std::move(name), std::move(upload_id), std::move(parts), size_bytes, sums,
        std::move(precondition), learned_->conditions);
  });
}

std::shared_ptr<Pending<std::string>> HttpStore::append_part(
    std::string name, std::string handle, std::shared_ptr<const UploadPart> part) {
  const std::string url = url_of(name);
  return start<std::string>(url, !name.empty(), [&] {
    return std::make_shared<AppendAttempt>(*protocol_, std::move(name), std::move(handle),
                                           std::move(part));
  });
}

std::shared_ptr<Pending<bool>> HttpStore::flush_append(std::string name, std::string handle) {
  const std::string url = url_of(name);
  return start<bool>(url, !name.empty(), [&] {
    return std::make_shared<FlushAttempt>(*protocol_, std::move(name), std::move(handle));
  });
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::rename_at_once(CopyRequest request,
                                                               ObjectInfo source) {
  const std::string url = url_of(request.name);
  return start<ObjectInfo>(url, !request.name.empty(), [&] {
    return std::make_shared<RenameAttempt>(*protocol_, std::move(request), std::move(source));
  });
}

bool HttpStore::renames_at_once(const ObjectInfo& source, std::string_view name) const {
  if (protocol_->appends() == nullptr || !moves_to(name)) return false;
  // Its new host may be told one of its properties only. The type is set again, but whoever reads
  // it before that must not take encoded bytes for plain ones.
  return source.content_encoding.empty() || are_together(source.name, name);
}

std::shared_ptr<Pending<bool>> HttpStore::describe(std::string name, const WriteRequest& like) {
  const std::string url = url_of(name);
  return start<bool>(url, !name.empty(), [&] {
    return std::make_shared<DescribeAttempt>(*protocol_, std::move(name), like);
  });
}

std::shared_ptr<Pending<bool>> HttpStore::know_map() {
  auto pending = std::make_shared<Pending<bool>>();
  pending->set_on_cancel([weak = std::weak_ptr(pending)] {
    if (const auto alive = weak.lock()) {
      alive->complete(fail(Code::kCancelled, "cancelled while waiting for the cluster's map"));
    }
  });
  // The fetch goes on, for others.
  const auto then = [self = shared_from_this(), pending] {
    const std::optional<Error> why = self->host_->map.why_unknown();
    if (!why) {
      pending->complete(true);
      return;
    }
    pending->complete(std::unexpected(
        Error(why->code(), cat("the map of the cluster is not known: ", why->to_string()))));
  };
  if (host_->map.when_known(then)) fetch_map();
  return pending;
}

bool HttpStore::are_together(std::string_view a, std::string_view b) const {
  const Placement* const placement = protocol_->placement();
  const std::shared_ptr<const HostMap> map = host_->map.map();
  if (placement == nullptr || map == nullptr) return false;
  const std::optional<size_t> host = placement->owner(*map, a);
  return host && host == placement->owner(*map, b);
}

std::string HttpStore::name_beside(const std::string& stem, std::string_view name) const {
  // Any name has the host with a chance of one in as many as there are.
  for (int i = 0; host_->map.version() > 0 && i < 1'000'000; ++i) {
    std::string beside = cat(stem, i);
    if (are_together(beside, name)) return beside;
  }
  return "";
}

void HttpStore::note_multipart(bool there) {
  learned_->multipart.note(there ? Learned::Treatment::kTaken : Learned::Treatment::kRefused,
                           std::chrono::steady_clock::now());
}

Error HttpStore::learn_from_refusal(Error error) {
  const MultipartUploads& uploads = *protocol_->multipart();
  if (uploads.has_equal_parts() || !uploads.wants_equal_parts(error)) return error;
  learned_->unequal_parts.note(Learned::Treatment::kRefused, std::chrono::steady_clock::now());
  return std::move(error).with_words(
      "",
      "; from now on this process sends it parts of one size, as the option equal_parts does: "
      "write it again");
}

std::shared_ptr<Pending<std::string>> HttpStore::start_resumable(WriteRequest request) {
  const std::string url = url_of(request.name);
  return start<std::string>(url, !request.name.empty(), [&] {
    return std::make_shared<StartResumableAttempt>(*protocol_, std::move(request));
  });
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::send_stream(StreamPiece piece) {
  const std::string url = url_of(piece.name);
  return start<ObjectInfo>(url, !piece.name.empty(), [&] {
    return std::make_shared<SendStreamAttempt>(*protocol_, std::move(piece));
  });
}

std::shared_ptr<Pending<bool>> HttpStore::cancel_resumable(std::string name, std::string session) {
  const std::string url = url_of(name);
  return start<bool>(url, !name.empty(), [&] {
    return std::make_shared<CancelResumableAttempt>(*protocol_, std::move(name),
                                                    std::move(session));
  });
}

std::shared_ptr<Pending<UploadsPage>> HttpStore::list_multipart(std::string prefix,
                                                                std::string after_name,
                                                                std::string after_upload_id) {
  const std::string url = url_of(prefix);
  return start<UploadsPage>(url, true, [&] {
    return std::make_shared<ListMultipartAttempt>(
        *protocol_, std::move(prefix), std::move(after_name), std::move(after_upload_id));
  });
}

std::shared_ptr<Pending<bool>> HttpStore::abort_multipart(std::string name, std::string upload_id) {
  const std::string url = url_of(name);
  return start<bool>(url, !name.empty(), [&] {
    return std::make_shared<AbortMultipartAttempt>(*protocol_, std::move(name),
                                                   std::move(upload_id));
  });
}

std::shared_ptr<Upload> HttpStore::make_upload(UploadMethod method, WriteRequest target) {
  switch (method) {
    case UploadMethod::kDefault: break;
    case UploadMethod::kParts:
      if (protocol_->composing() == nullptr) break;
      return std::make_shared<PartObjects>(shared_from_this(), std::move(target));
    case UploadMethod::kMultipart:
      if (protocol_->multipart() == nullptr) break;
      if (protocol_->appends() != nullptr) {
        const Learned::Treatment known = learned_->multipart.at(std::chrono::steady_clock::now());
        if (known == Learned::Treatment::kRefused) {
          return std::make_shared<AppendUpload>(shared_from_this(), std::move(target));
        }
        if (known == Learned::Treatment::kUnknown) {
          return std::make_shared<ProbedUpload>(shared_from_this(), target);
        }
      }
      if (protocol_->multipart()->is_conditional()) {
        return std::make_shared<DirectMultipartUpload>(shared_from_this(), std::move(target));
      }
      return std::make_shared<StagedMultipartUpload>(shared_from_this(), std::move(target));
    case UploadMethod::kResumable:
      if (protocol_->resumable() == nullptr) break;
      return std::make_shared<ResumableUpload>(shared_from_this(), std::move(target));
  }
  return nullptr;
}

std::shared_ptr<Upload> HttpStore::new_upload(WriteRequest target) {
  return make_upload(protocol_->default_upload_method(), std::move(target));
}

Result<std::shared_ptr<ObjectWriter>> HttpStore::open_writer(WriterOptions options) {
  const std::string url = url_of(options.object.name);
  if (Result<void> good = protocol_->check_new_name(options.object.name); !good) {
    return std::unexpected(std::move(good.error()).with_url(url));
  }
  // Checked before any part is sent, not by the request that publishes them.
  if (!is_printable_ascii(options.object.content_type)) {
    return std::unexpected(HttpRequest::not_printable("content_type").with_url(url));
  }
  if (!is_printable_ascii(options.object.content_encoding)) {
    return std::unexpected(HttpRequest::not_printable("content_encoding").with_url(url));
  }
  const UploadMethod method = options.method == UploadMethod::kDefault
                                  ? protocol_->default_upload_method()
                                  : options.method;
  std::shared_ptr<Upload> upload = make_upload(method, std::move(options.object));
  if (upload == nullptr) {
    return std::unexpected(
        Error(Code::kInvalidArgument,
              cat("this store has no uploads of the method '", to_string(method), "'"))
            .with_url(url));
  }
  return ObjectWriter::open(
      {.pool = engine_->pool, .registry = engine_->writers, .url = url, .log = engine_->log},
      std::move(upload), options);
}

std::shared_ptr<Pending<bool>> HttpStore::remove(std::string name, Precondition precondition) {
  const std::string url = url_of(name);
  return start<bool>(url, !name.empty(), [&] {
    return std::make_shared<RemoveAttempt>(*protocol_, std::move(name), std::move(precondition),
                                           learned_->removal_conditions);
  });
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::copy(CopyRequest request) {
  const bool named = !request.name.empty() && !request.source_name.empty();
  if (copies_at_once() || !named) return copy_at_once(std::move(request), {});
  return ServerCopy::start(shared_from_this(), engine_->writers, std::move(request));
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::copy_from(CopyRequest request, CopySource source) {
  if (copies_at_once()) return copy_at_once(std::move(request), std::move(source.info));
  return ServerCopy::start(shared_from_this(), engine_->writers, std::move(request),
                           std::move(source));
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::rename(CopyRequest request) {
  Result<void> good = protocol_->check_new_name(request.name);
  if (request.name.empty() || request.source_name.empty()) good = invalid_argument(kEmptyName);
  if (good && request.name == request.source_name) good = invalid_argument(kSameName);
  if (!good) {
    auto refused = std::make_shared<Pending<ObjectInfo>>();
    refused->complete(std::unexpected(std::move(good.error()).with_url(url_of(request.name))));
    return refused;
  }
  return ServerRename::start(shared_from_this(), std::move(request));
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::copy_at_once(CopyRequest request,
                                                             std::optional<ObjectInfo> source) {
  const std::string url = url_of(request.name);
  const bool named = !request.name.empty() && !request.source_name.empty();
  return start<ObjectInfo>(url, named, [&] {
    return source
               ? std::make_shared<CopyAttempt>(*protocol_, std::move(request), std::move(*source))
               : std::make_shared<CopyAttempt>(*protocol_, std::move(request));
  });
}

std::shared_ptr<Pending<CopySource>> HttpStore::look_at_source(std::string name) {
  const std::string url = url_of(name);
  return start<CopySource>(url, !name.empty(), [&] {
    return std::make_shared<CopySourceAttempt>(*protocol_, std::move(name));
  });
}

std::shared_ptr<Pending<ObjectInfo>> HttpStore::compose(ComposeRequest request) {
  const std::string url = url_of(request.name);
  const size_t count = request.sources.size();
  if (count == 0 || count > max_compose_sources()) {
    auto refused = std::make_shared<Pending<ObjectInfo>>();
    refused->complete(
        std::unexpected(Error(Code::kInvalidArgument,
                              max_compose_sources() == 0
                                  ? std::string("objects cannot be joined on this service")
                                  : cat("it cannot be composed of ", count, " objects: 1 to ",
                                        max_compose_sources(), " are allowed"))
                            .with_url(url)));
    return refused;
  }
  return start<ObjectInfo>(url, !request.name.empty(), [&] {
    return std::make_shared<ComposeAttempt>(*protocol_, std::move(request));
  });
}

// ── The map of a cluster ─────────────────────────────────────────────────────────────────────

void HttpStore::fetch_map() {
  std::shared_ptr<Gate::Pass> pass = engine_->gate->enter();
  HostLane* lane =
      host_->lanes[next_lane_.fetch_add(1, std::memory_order_relaxed) % host_->lanes.size()].get();
  if (pass == nullptr) {
    host_->map.fetched(fail(Code::kCancelled, "the engine was stopped"), lane->thread().now());
    return;
  }
  lane->thread().post([self = shared_from_this(), lane, pass = std::move(pass)]() mutable {
    asio::co_spawn(lane->thread().context(), run_map_fetch(self, *lane, std::move(pass)),
                   [self, lane](std::exception_ptr thrown) {
                     if (!thrown) return;
                     self->host_->map.fetched(fail(Code::kInternal, "an exception ended it"),
                                              lane->thread().now());
                   });
  });
}

awaitable<void> HttpStore::run_map_fetch(std::shared_ptr<HttpStore> self, HostLane& lane,
                                         [[maybe_unused]] std::shared_ptr<Gate::Pass> pass) {
  // Beyond the limit: those who hold the slots may be waiting for the map.
  Slot slot(lane, /*reads=*/false);
  Result<void> done;
  MapAttempt attempt(*self->protocol_);
  {
    HttpRequest request;
    Operation operation(slot, *self->contexts_[lane.thread().index()], self.get());
    done = co_await operation.run(attempt, request);
  }
  slot.release();
  if (!done) attempt.result = std::unexpected(std::move(done.error()));
  self->host_->map.fetched(std::move(attempt.result), lane.thread().now());
}

std::shared_ptr<Pending<bool>> HttpStore::get_batch(std::shared_ptr<BatchGet> get) {
  return start<bool>(url_of(""), true,
                     [&] { return std::make_shared<BatchGetAttempt>(*protocol_, std::move(get)); });
}

// ── Signed URLs ──────────────────────────────────────────────────────────────────────────────

std::shared_ptr<Pending<std::string>> HttpStore::presigned_url(UrlRequest request) {
  const std::string url = url_of(request.name);
  auto pending = std::make_shared<Pending<std::string>>();
  const UrlSigning* signing = protocol_->url_signing();
  if (signing == nullptr || contexts_.front()->credentials == nullptr) {
    pending->complete(std::unexpected(
        Error(Code::kInvalidArgument,
              signing == nullptr ? "this store has no presigned URLs"
                                 : "a URL is signed with credentials, and this store has none "
                                   "(credentials are 'anonymous'): give it keys, or share the "
                                   "URL of the object itself")
            .with_url(url)));
    return pending;
  }
  if (signing->knows_place() || place_asked_.load(std::memory_order_relaxed)) {
    return sign_url(std::move(request));
  }
  // What the answer says of the object does not matter.
  const std::shared_ptr<Pending<ObjectInfo>> asked = stat(request.name);
  pending->set_on_cancel([asked] { asked->cancel(); });
  asked->then([self = shared_from_this(), request = std::move(request),
               pending](Result<ObjectInfo> found) mutable {
    if (!found && (is_retryable(found.error()) || found.error().http_status() == 0)) {
      pending->complete(std::unexpected(std::move(found.error())));
      return;
    }
    self->place_asked_.store(true, std::memory_order_relaxed);
    const std::shared_ptr<Pending<std::string>> made = self->sign_url(std::move(request));
    pending->set_on_cancel([made] { made->cancel(); });
    made->then(
        [pending](Result<std::string> signed_url) { pending->complete(std::move(signed_url)); });
  });
  return pending;
}

std::shared_ptr<Pending<std::string>> HttpStore::sign_url(UrlRequest request) {
  const std::string url = url_of(request.name);
  return spawn<std::string>(url, !request.name.empty(), [&request] {
    return [request = std::move(request)](std::shared_ptr<HttpStore> self, HostLane& lane,
                                          std::shared_ptr<Pending<std::string>> pending,
                                          std::shared_ptr<Gate::Pass> pass) mutable {
      return run_signing(std::move(self), lane, std::move(request), std::move(pending),
                         std::move(pass));
    };
  });
}

awaitable<void> HttpStore::run_signing(std::shared_ptr<HttpStore> self, HostLane& lane,
                                       UrlRequest request,
                                       std::shared_ptr<Pending<std::string>> pending,
                                       [[maybe_unused]] std::shared_ptr<Gate::Pass> pass) {
  IoThread& thread = lane.thread();
  StoreContext& context = *self->contexts_[thread.index()];
  Result<std::string> made;
  {
    Waiting waiting(thread, pending.get(), thread.now() + context.timeout.total);
    if (pending->cancelled()) waiting.stop(Error(Code::kCancelled, "it was cancelled"));
    Result<void> ready;
    if (const std::optional<Error>& stopped = waiting.stopped()) {
      ready = std::unexpected(*stopped);
    } else {
      ready = co_await authorize(waiting, context);
    }
    if (ready) {
      made = self->protocol_->url_signing()->signed_url(
          request, *context.credential, thread.clock().wall_now() + context.clock_offset);
    } else {
      made = std::unexpected(std::move(ready.error()));
    }
  }
  if (!made) made = std::unexpected(std::move(made.error()).with_url(self->url_of(request.name)));
  pending->complete(std::move(made));
}

}  // namespace headrace
