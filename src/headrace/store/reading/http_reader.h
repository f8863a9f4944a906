// How a batch is read over HTTP.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "headrace/store/object_store.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/reading/read_attempt.h"
#include "headrace/store/slot_memory.h"
#include "headrace/store/transfer/remote_root.h"

namespace headrace {

// Deals the slots of a batch to the I/O threads, splits what is large, compares what came, and
// decompresses what is stored as gzip.
// Thread: any, except that only lanes call read_piece() and piece_failed().
class HttpReader final : public PieceReader, public std::enable_shared_from_this<HttpReader> {
 public:
  HttpReader(std::shared_ptr<RemoteRoot> remote, const StoreOptions& options);

  void read(std::shared_ptr<ReadBatch> batch);
  // Opens connections for `count` reads that will come soon.
  void expect_reads(uint32_t count);
  // As far as reads have shown, or a guess.
  uint64_t expected_object_bytes() const {
    const uint64_t mean = host_.reads.mean_object_bytes();
    return mean > 0 ? mean : kFirstGuessBytes;
  }

  awaitable<void> read_piece(Permit& permit, ReadPiece& piece, HttpRequest& request) override;
  void piece_failed(HostLane& lane, ReadPiece& piece, Error error) override;
  const std::shared_ptr<Pace>& pace() const override { return remote_->pace(); }

 private:
  static constexpr uint64_t kFirstGuessBytes = 256 * kKiB;

  void on_wait_or_cancel(const std::shared_ptr<ReadBatch>& batch);
  void spread(HostLane& lane, PieceList pieces);
  void fail_all(HostLane& lane, PieceList pieces, const Error& error);
  // Before and after the operation. Not inlined: their variables would lie in the frame of
  // read_piece(), which Asio keeps for the next one only if it has at most 1,020 bytes.
  [[gnu::noinline]] bool begin_piece(HostLane& lane, ReadPiece& piece);
  [[gnu::noinline]] void end_piece(HostLane& lane, ReadPiece& piece, Result<void> done,
                                   bool lacks_room);
  // Back into the queue until there is room.
  void defer(HostLane& lane, ReadPiece& piece);
  Result<Room> prepare(HostLane& lane, ReadSlot& slot, ReadPiece& lead);
  void piece_done(HostLane& lane, ReadPiece& piece);
  void slot_done(HostLane& lane, ReadBatch& batch, ReadSlot& slot);
  bool should_restart(const ReadSlot& slot) const;
  void give_up(HostLane& lane, ReadBatch& batch, ReadSlot& slot, bool stops);
  void conclude(HostLane& lane, ReadBatch& batch, ReadSlot& slot, const Checksum& sum);
  Result<void> verify(const ReadBatch& batch, ReadSlot& slot, const Checksum& sum,
                      Metrics& metrics);
  void decompress(std::shared_ptr<ReadBatch> batch, ReadSlot& slot);
  Result<std::optional<Block>> plain_memory(ReadBatch& batch, ReadSlot& slot);

  const std::shared_ptr<RemoteRoot> remote_;  // and three of its parts:
  const EngineResources& engine_;
  Host& host_;
  const Protocol& protocol_;
  const ReadRules rules_;
  const OnChange on_change_;
};

}  // namespace headrace
