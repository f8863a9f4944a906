// The chunked transfer coding (RFC 9112 section 7.1), decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "headrace/base/result.h"

namespace headrace {

// Takes the chunks off one body. Resumable at any byte of input and of output; extensions and
// trailer fields are skipped, within limits.
// Thread: confined. Owns no bytes.
// Errors: kUnavailable for anything that is not chunked coding; after one, the decoder is finished.
class ChunkedDecoder {
 public:
  struct Step {
    size_t consumed = 0;  // bytes taken from `in`
    size_t produced = 0;  // bytes written to `out`
    bool done =
        false;  // the body and its trailers have ended; the rest of `in` belongs to what follows
  };

  // Continues until `in` is used up, `out` is full with more to write, or the body ends. May be
  // called with an empty `out` to take framing only. `in` and `out` may be the same memory if
  // out.data() <= in.data(): a byte is written only where it was already read.
  Result<Step> decode(std::span<const std::byte> in, std::span<std::byte> out);

  bool done() const { return state_ == State::kDone; }

  // Bytes that are certain to follow in the present chunk, which may be read straight into place.
  uint64_t chunk_remaining_bytes() const { return state_ == State::kData ? remaining_ : 0; }
  // Tells the decoder that `size_bytes` (at most chunk_remaining_bytes()) were read past it.
  void skip_data(uint64_t size_bytes);

 private:
  enum class State : uint8_t {
    kSize,       // hexadecimal digits
    kSizeSpace,  // white space after them
    kExtension,  // up to the CR
    kSizeLf,     // the LF after a chunk's size
    kData,       // the chunk itself
    kDataCr,     // the CR LF after it
    kDataLf,
    kTrailerStart,  // the beginning of a trailer line, or the CR of the last, empty one
    kTrailer,       // inside a trailer line
    kTrailerLf,
    kEndLf,  // the LF of the last, empty line
    kDone,
    kFailed,
  };
  Result<Step> failed(const char* what);

  State state_ = State::kSize;
  uint8_t digit_count_ = 0;
  uint32_t line_bytes_ = 0;     // of the present chunk-size line
  uint32_t trailer_bytes_ = 0;  // of all trailers
  uint64_t remaining_ = 0;      // the size being read, then what is left of the chunk
};

}  // namespace headrace
