// What reads the pieces that wait in a lane.
#pragma once

#include <memory>

#include "headrace/base/result.h"
#include "headrace/http/asio.h"
#include "headrace/http/message.h"
#include "headrace/store/read_batch.h"
#include "headrace/store/transfer/pace.h"

namespace headrace {

class HostLane;
class Permit;

// Reads the pieces that it has queued in a lane. Implemented by HttpReader.
// Thread: I/O.
class PieceReader {
 public:
  // Takes one piece from its first attempt to its end: done, failed, or back in the queue.
  virtual awaitable<void> read_piece(Permit& permit, ReadPiece& piece, HttpRequest& request) = 0;
  // The piece failed before or outside of read_piece().
  virtual void piece_failed(HostLane& lane, ReadPiece& piece, Error error) = 0;
  virtual const std::shared_ptr<Pace>& pace() const = 0;

 protected:
  ~PieceReader() = default;
};

}  // namespace headrace
