#include "headrace/store/reading/http_reader.h"

#include <algorithm>
#include <functional>
#include <new>
#include <utility>
#include <vector>

#include "headrace/format/gunzip.h"

namespace headrace {
namespace {

Error cancelled() { return Error(Code::kCancelled, "the read was cancelled"); }

}  // namespace

HttpReader::HttpReader(std::shared_ptr<RemoteRoot> remote, const StoreOptions& options)
    : remote_(std::move(remote)),
      engine_(remote_->engine()),
      host_(remote_->host()),
      protocol_(remote_->protocol()),
      rules_{.range_threshold_bytes = options.range_threshold_bytes,
             .range_bytes = options.range_bytes,
             .content_encoding = options.content_encoding,
             .verify = options.verify,
             .end_is_told = host_.route->endpoint.tls,
             .learned = remote_->shared_learned()},
      on_change_(options.on_change) {}

void HttpReader::read(std::shared_ptr<ReadBatch> batch) {
  std::shared_ptr<Gate::Pass> pass = engine_.gate->enter();
  const size_t lane_count = host_.lanes.size();
  // Before the batch is handed over: if there is no memory, it is not.
  std::vector<PieceList> shares(lane_count);
  batch->make_shares(lane_count);
  // This function keeps the pass and the reader alive until the batch releases it.
  batch->hand_over(engine_.pool, [self = shared_from_this(), weak = std::weak_ptr(batch), pass] {
    if (const std::shared_ptr<ReadBatch> alive = weak.lock()) self->on_wait_or_cancel(alive);
  });
  const size_t rotation = remote_->next_lane_index();
  const size_t slot_count = batch->size();
  size_t dealt_count = 0;
  const auto lane_of = [&](size_t i) { return static_cast<uint32_t>((i + rotation) % lane_count); };
  for (size_t i = 0; i < slot_count; ++i) {
    ReadSlot& slot = batch->slot(i);
    std::optional<Error> refused;
    if (pass == nullptr) refused = Error(Code::kCancelled, "the engine was stopped");
    if (slot.name.empty()) refused = Error(Code::kInvalidArgument, kEmptyName);
    if (refused) {
      batch->set_error(slot, std::move(*refused).with_url(protocol_.url_of(batch->name(slot))));
      batch->slot_done();
      continue;
    }
    if (protocol_.transforms()) batch->forget_listing(slot);
    ReadPiece& piece = slot.first_piece;
    piece.reader = this;
    // Neighbours in the batch go to different threads, so that the batch is done as soon as
    // possible.
    shares[lane_of(i)].append(piece);
    ++dealt_count;
  }
  // Before the first lane may start: from then on the batch may end at any moment.
  if (dealt_count > 0) {
    const auto lane_or_none = [&](size_t i) {
      return batch->slot(i).first_piece.reader == this ? lane_of(i) : ReadSlot::kNoLane;
    };
    batch->deal(std::cref(lane_or_none));  // by reference, which takes no memory
    host_.reads.queued_changed(*batch);
  }
  for (size_t i = 0; i < lane_count; ++i) {
    if (shares[i].empty()) continue;
    HostLane* lane = host_.lanes[i].get();
    try {
      lane->thread().post([lane, first = shares[i].first] {  // two words, which need no allocation
        lane->add(PieceList::linked(first));
        lane->pump();
      });
    } catch (const std::bad_alloc&) {  // they end here: their thread knows nothing of them
      for (PieceList& share = shares[i]; !share.empty();) {
        if (batch->remove_queued(static_cast<uint32_t>(i))) host_.reads.queued_changed(*batch);
        piece_failed(*lane, share.take_first(), Error(Code::kInternal, "no memory"));
      }
    }
  }
}

void HttpReader::expect_reads(uint32_t count) {
  // Those reads go to other hosts, or wait for their turns.
  if (protocol_.placement() != nullptr || protocol_.moved_to() != nullptr) return;
  if (remote_->pace()->refused()) return;
  const uint64_t each_bytes = std::max<uint64_t>(expected_object_bytes(), 1);
  const uint64_t fitting = std::max<uint64_t>(engine_.pool->budget_bytes() / each_bytes, 1);
  const auto wanted = static_cast<uint32_t>(std::min<uint64_t>(count, fitting));
  const std::shared_ptr<Gate::Pass> pass = engine_.gate->enter();
  if (pass == nullptr) return;
  const auto lane_count = static_cast<uint32_t>(host_.lanes.size());
  for (uint32_t i = 0; i < lane_count; ++i) {
    const uint32_t share = wanted / lane_count + (i < wanted % lane_count ? 1 : 0);
    HostLane* const lane = host_.lanes[i].get();
    lane->thread().post([lane, share, pass] { lane->open_ahead(share); });
  }
}

// The batch is waited for now, or cancelled.
void HttpReader::on_wait_or_cancel(const std::shared_ptr<ReadBatch>& batch) {
  if (engine_.decompressions_waiting.load(std::memory_order_seq_cst) > 0) {
    engine_.compute->wake();
  }
  // Whether a batch is waited for matters only if pieces are set aside for lack of memory.
  if (!batch->cancelled() && !host_.reads.short_of_memory()) return;
  for (const std::unique_ptr<HostLane>& owned : host_.lanes) {
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

void HttpReader::fail_all(HostLane& lane, PieceList pieces, const Error& error) {
  while (!pieces.empty()) piece_failed(lane, pieces.take_first(), error);
}

// Deals pieces out to all lanes, so that every I/O thread reads part of a large object.
void HttpReader::spread(HostLane& lane, PieceList pieces) {
  if (pieces.empty()) return;
  ReadBatch& batch = *pieces.first->batch;
  batch.take_from_lane(batch.slot(pieces.first->slot_index));
  const size_t lane_count = host_.lanes.size();
  std::vector<PieceList> shares(lane_count);
  for (size_t i = lane.thread().index(); !pieces.empty(); ++i) {
    shares[(i + 1) % lane_count].append(pieces.take_first());
  }
  for (size_t i = 0; i < lane_count; ++i) {
    if (shares[i].empty()) continue;
    HostLane* to = host_.lanes[i].get();
    to->thread().post([self = shared_from_this(), to, share = shares[i]] {
      if (share.first->batch->cancelled()) {  // this lane may have dropped its pieces already
        self->fail_all(*to, share, cancelled());
      } else {
        to->add_in_front(share);
      }
      to->pump();
    });
  }
}

awaitable<void> HttpReader::read_piece(Permit& permit, ReadPiece& piece, HttpRequest& request) {
  HostLane& lane = permit.lane();
  if (!begin_piece(lane, piece)) co_return;
  Operation operation(permit, remote_->context(lane), piece.batch);
  ReadAttempt attempt(protocol_, rules_, lane.pool(), piece.batch->slot(piece.slot_index), piece);
  attempt.on_split = [this, &lane](PieceList pieces) { spread(lane, pieces); };
  Result<void> done = co_await operation.run(attempt, request);
  end_piece(lane, piece, std::move(done), attempt.lacks_room());
}

// Whether it is to be read.
bool HttpReader::begin_piece(HostLane& lane, ReadPiece& piece) {
  ReadSlot& slot = piece.batch->slot(piece.slot_index);
  if (piece.batch->cancelled()) {
    piece_failed(lane, piece, cancelled());
    return false;
  }
  if (lane.thread().stopping()) {  // it must not wait for memory, whose owners need this thread
    piece_failed(lane, piece, Error(Code::kCancelled, "the engine was stopped"));
    return false;
  }
  if (slot.failed.load(std::memory_order_acquire)) {  // another piece has spoilt it
    piece_done(lane, piece);
    return false;
  }
  if (&piece != &slot.first_piece) return true;
  Result<Room> ready = prepare(lane, slot, piece);
  if (!ready) {
    piece_failed(lane, piece, std::move(ready.error()));
    return false;
  }
  if (*ready == Room::kNotNow) defer(lane, piece);
  return *ready == Room::kMade;
}

void HttpReader::end_piece(HostLane& lane, ReadPiece& piece, Result<void> done, bool lacks_room) {
  if (done && lacks_room) return defer(lane, piece);
  if (!done) piece.batch->set_error(piece.batch->slot(piece.slot_index), std::move(done.error()));
  tally(lane.thread().metrics().bytes_read_total, piece.received_bytes);
  piece_done(lane, piece);
}

void HttpReader::defer(HostLane& lane, ReadPiece& piece) {
  // Before its reservation becomes free, so that others leave the room to the older batch.
  lane.add_again(piece);
  drop_reservation(lane.pool(), piece.batch->slot(piece.slot_index));
}

// What can be done before the first request of a slot.
Result<Room> HttpReader::prepare(HostLane& lane, ReadSlot& slot, ReadPiece& lead) {
  if (Result<void> limited = slot.limit_to(slot.object_bytes); !limited) {
    return std::unexpected(std::move(limited.error()));
  }
  // A sum that is not compared must not keep away the one that the store tells.
  if (!compares(rules_.verify, slot.expected.kind())) slot.expected = {};
  const bool size_known = slot.object_bytes != kUnknownSize;
  const uint64_t wanted = slot.range.size_bytes();
  if (size_known) {
    if (Result<void> fits = slot.check_destination(); !fits) {
      return std::unexpected(std::move(fits.error()));
    }
    Result<Room> room = make_room(lane.pool(), slot, wanted, lead.batch->waited_for());
    if (!room || *room == Room::kNotNow) return room;
  }
  if (wanted > rules_.range_threshold_bytes && slot.piece_count == 1) {
    if (size_known && !slot.generation.empty() &&
        !ReadAttempt::lacks_sum(protocol_, rules_, slot)) {
      // Written before the pieces are given to other threads, where they only compare it.
      slot.found_generation.assign(lead.batch->generation(slot));
      slot.choose_running_kind(protocol_.sum_told_with_parts());
      spread(lane, slot.split(rules_.range_bytes, rules_.range_bytes));
    } else {
      // All pieces must be of one generation. The lead's answer tells which; then the rest is split
      // off.
      lead.range.end = kUnknownSize;
    }
  }
  return Room::kMade;
}

void HttpReader::piece_failed(HostLane& lane, ReadPiece& piece, Error error) {
  ReadSlot& slot = piece.batch->slot(piece.slot_index);
  piece.batch->set_error(slot,
                         std::move(error).with_url(protocol_.url_of(piece.batch->name(slot))));
  piece_done(lane, piece);
}

void HttpReader::piece_done(HostLane& lane, ReadPiece& piece) {
  ReadSlot& slot = piece.batch->slot(piece.slot_index);
  if (slot.piece_count == 1 || slot.pieces_left.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    slot_done(lane, *piece.batch, slot);
  }
}

bool HttpReader::should_restart(const ReadSlot& slot) const {
  if (!slot.error) return false;
  // A bad transfer is tried once more; a bad object will be bad again.
  if (slot.error->code() == Code::kCorrupt) return slot.restarts == 0;
  return slot.error->code() == Code::kPreconditionFailed && on_change_ == OnChange::kReread &&
         slot.restarts < 3;
}

Result<void> HttpReader::verify(const ReadBatch& batch, ReadSlot& slot, const Checksum& sum,
                                Metrics& metrics) {
  if (slot.into.scatter()) {
    tally(metrics.checksums_verified_total, slot.into.scatter()->compare());
    return {};
  }
  const Checksum& expected = slot.expected;
  if (!compares(rules_.verify, expected.kind())) {
    if (rules_.verify != Verify::kNone && !slot.is_range() && !slot.into.empty()) {
      host_.log.unverified([&] { return protocol_.url_of(batch.name(slot)); }, expected.kind());
    }
    return {};
  }
  if (sum != expected) {
    return corrupt("the bytes that came have ", label(sum.kind()), " ", to_base64(sum),
                   slot.is_range() ? ", the index says " : ", the object has ",
                   to_base64(expected));
  }
  tally(metrics.checksums_verified_total);
  return {};
}

void HttpReader::slot_done(HostLane& lane, ReadBatch& batch, ReadSlot& slot) {
  if (slot.error) return conclude(lane, batch, slot, {});
  const Checksum sum = slot.join_sums();
  const ChecksumKind kind = slot.expected.kind();
  if (kind == sum.kind() || !compares(rules_.verify, kind)) return conclude(lane, batch, slot, sum);
  if (kind == ChecksumKind::kXxh64 && slot.into.size() <= kSumAtOnceBytes) {
    return conclude(lane, batch, slot, sum_of(kind, slot.into));
  }
  // A digest takes longer than the bytes took to come: not on a thread that others wait for.
  const bool posted = engine_.compute->post(
      [self = shared_from_this(), alive = batch.shared_from_this(), &lane, &slot, kind] {
        const bool stops = self->engine_.stopping.load();
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

void HttpReader::give_up(HostLane& lane, ReadBatch& batch, ReadSlot& slot, bool stops) {
  Error error = stops ? Error(Code::kCancelled, "the engine was stopped") : cancelled();
  batch.set_error(slot, std::move(error).with_url(protocol_.url_of(batch.name(slot))));
  conclude(lane, batch, slot, {});
}

// `sum`: of the bytes that came, of the kind that is expected.
void HttpReader::conclude(HostLane& lane, ReadBatch& batch, ReadSlot& slot, const Checksum& sum) {
  if (!slot.error) {
    if (Result<void> good = verify(batch, slot, sum, lane.thread().metrics()); !good) {
      // At least one for each piece, each time.
      batch.set_error(slot,
                      std::move(good.error())
                          .with_url(protocol_.url_of(batch.name(slot)))
                          .with_attempts(static_cast<int>((slot.restarts + 1) * slot.piece_count)));
    }
  }
  if (!slot.error) host_.reads.learn_size(slot.range.size_bytes() / slot.read_count());
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
          engine_.compute->post([self = shared_from_this(), alive = batch.shared_from_this(),
                                 &slot] { self->decompress(alive, slot); });
      if (posted) return;
      batch.set_error(slot, Error(Code::kCancelled, "the engine was stopped"));
    }
  }
  if (!batch.ends_lane(slot)) return;
  batch.slot_done();
}

// Memory for the decompressed object. Its size is what the gzip data claims, or is counted if that
// turns out to be wrong. None if there is no room now.
Result<std::optional<Block>> HttpReader::plain_memory(ReadBatch& batch, ReadSlot& slot) {
  BlockPool& pool = *engine_.pool;
  const std::span<const std::byte> packed = slot.into.block().bytes();
  uint64_t size_bytes = slot.rare && slot.rare->plain_bytes != kUnknownSize
                            ? slot.rare->plain_bytes
                            : gunzipped_bytes_hint(packed);
  if (BlockPool::charged_bytes(size_bytes) > pool.budget_bytes()) {
    const Result<uint64_t> counted = gunzipped_bytes(packed, pool.budget_bytes());
    if (!counted) return std::unexpected(counted.error());
    size_bytes = *counted;
  }
  std::optional<Block> block;
  const auto allocate = [&] {
    const bool at_once = batch.waited_for() || batch.cancelled() || engine_.stopping.load();
    block = at_once ? pool.allocate(size_bytes) : pool.allocate_within_budget(size_bytes);
    return block.has_value();
  };
  if (!try_or_ask_for_room(pool, allocate)) return std::nullopt;
  if (size_bytes > 0 && block->data() == nullptr) {
    return fail(Code::kExhausted, "the system has no memory for ", size_bytes, " bytes");
  }
  return block;
}

// Runs on a compute thread. If there is no memory it waits, like a read, without occupying the
// thread.
void HttpReader::decompress(std::shared_ptr<ReadBatch> batch, ReadSlot& slot) {
  Result<void> done;
  if (slot.into.is_callers() || slot.is_range()) {
    done = invalid_argument(
        "it is stored as gzip: it can be decompressed only when it is read "
        "whole and into the engine's memory");
  }
  uint64_t& plain_bytes = slot.make_rare().plain_bytes;
  while (done) {
    ThreadPool& compute = *engine_.compute;
    const uint64_t seen = compute.wake_count();
    // Before checking whether the batch is waited for; want() does these two in the opposite order.
    engine_.decompressions_waiting.fetch_add(1, std::memory_order_seq_cst);
    Result<std::optional<Block>> plain = plain_memory(*batch, slot);
    if (plain && !*plain) {
      const bool parked = compute.park(
          [self = shared_from_this(), batch, &slot] {
            self->engine_.decompressions_waiting.fetch_sub(1, std::memory_order_seq_cst);
            self->decompress(batch, slot);
          },
          seen);
      if (parked) return;
      plain = fail(Code::kCancelled, "the engine was stopped");
    }
    engine_.decompressions_waiting.fetch_sub(1, std::memory_order_seq_cst);
    if (!plain) {
      done = std::unexpected(std::move(plain.error()));
      break;
    }
    Block& block = **plain;
    const Result<uint64_t> size_bytes = gunzip(slot.into.block().bytes(), block.bytes());
    const bool lied = size_bytes ? *size_bytes != block.size_bytes()
                                 : size_bytes.error().code() == Code::kExhausted;
    if (lied && plain_bytes == kUnknownSize) {
      block.release();
      const Result<uint64_t> counted =
          gunzipped_bytes(slot.into.block().bytes(), engine_.pool->budget_bytes());
      if (counted) {
        plain_bytes = *counted;
      } else {
        done = std::unexpected(counted.error());
      }
      continue;
    }
    if (size_bytes) {
      slot.into = ReadMemory(std::move(block));
    } else {
      done = std::unexpected(size_bytes.error());
    }
    break;
  }
  if (!done)
    batch->set_error(slot, std::move(done.error()).with_url(protocol_.url_of(batch->name(slot))));
  batch->slot_done();
}

}  // namespace headrace
