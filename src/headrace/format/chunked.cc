#include "headrace/format/chunked.h"

#include <algorithm>
#include <cstring>

#include "headrace/base/ascii.h"

namespace headrace {
namespace {

constexpr uint32_t kMaxLineBytes = 4 * 1024;      // a chunk's size with its extensions
constexpr uint32_t kMaxTrailerBytes = 16 * 1024;  // all trailers together
constexpr uint8_t kMaxDigits = 16;                // what 64 bits hold

// A bare LF above all: what one reader takes for the end of a line and another does not.
bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\t') || byte == 0x7F;
}

}  // namespace

Result<ChunkedDecoder::Step> ChunkedDecoder::failed(const char* what) {
  state_ = State::kFailed;
  return fail(Code::kUnavailable, "chunked body: ", what);
}

void ChunkedDecoder::skip_data(uint64_t size_bytes) {
  remaining_ -= std::min(size_bytes, chunk_remaining_bytes());
  if (state_ == State::kData && remaining_ == 0) state_ = State::kDataCr;
}

Result<ChunkedDecoder::Step> ChunkedDecoder::decode(std::span<const std::byte> in,
                                                    std::span<std::byte> out) {
  Step step;
  while (step.consumed < in.size() && state_ != State::kDone) {
    if (state_ == State::kData) {
      const size_t piece_bytes = static_cast<size_t>(
          std::min<uint64_t>({remaining_, in.size() - step.consumed, out.size() - step.produced}));
      if (piece_bytes == 0) break;  // `out` is full
      std::memmove(out.data() + step.produced, in.data() + step.consumed, piece_bytes);
      step.consumed += piece_bytes;
      step.produced += piece_bytes;
      skip_data(piece_bytes);
      continue;
    }
    const char c = static_cast<char>(in[step.consumed]);
    ++step.consumed;
    switch (state_) {
      case State::kSize:
        if (const int digit = hex_value(c); digit >= 0) {
          if (++digit_count_ > kMaxDigits) return failed("a chunk's size is too long");
          remaining_ = remaining_ << 4 | static_cast<uint64_t>(digit);
          break;
        }
        if (digit_count_ == 0) return failed("a chunk's size is missing");
        state_ = State::kSizeSpace;
        [[fallthrough]];
      case State::kSizeSpace:
        if (++line_bytes_ > kMaxLineBytes) return failed("a chunk's size line is too long");
        if (c == '\r') {
          state_ = State::kSizeLf;
        } else if (c == ';') {
          state_ = State::kExtension;
        } else if (c != ' ' && c != '\t') {
          return failed("a chunk's size is malformed");
        }
        break;
      case State::kExtension:
        if (++line_bytes_ > kMaxLineBytes) return failed("a chunk's size line is too long");
        if (c == '\r') {
          state_ = State::kSizeLf;
        } else if (is_control(c)) {
          return failed("a control character in a chunk extension");
        }
        break;
      case State::kSizeLf:
        if (c != '\n') return failed("a chunk's size is not followed by CR LF");
        digit_count_ = 0;
        line_bytes_ = 0;
        state_ = remaining_ == 0 ? State::kTrailerStart : State::kData;
        break;
      case State::kDataCr:
        if (c != '\r') return failed("a chunk is not followed by CR LF");
        state_ = State::kDataLf;
        break;
      case State::kDataLf:
        if (c != '\n') return failed("a chunk is not followed by CR LF");
        state_ = State::kSize;
        break;
      case State::kTrailerStart:
        if (c == '\r') {
          state_ = State::kEndLf;
          break;
        }
        state_ = State::kTrailer;
        [[fallthrough]];
      case State::kTrailer:
        if (++trailer_bytes_ > kMaxTrailerBytes) return failed("the trailers are too long");
        if (c == '\r') {
          state_ = State::kTrailerLf;
        } else if (is_control(c)) {
          return failed("a control character in a trailer");
        }
        break;
      case State::kTrailerLf:
        if (c != '\n') return failed("a trailer is not followed by CR LF");
        state_ = State::kTrailerStart;
        break;
      case State::kEndLf:
        if (c != '\n') return failed("the end is not followed by CR LF");
        state_ = State::kDone;
        break;
      case State::kFailed: return failed("it was malformed before");
      case State::kData:
      case State::kDone: break;  // handled before the switch
    }
  }
  step.done = state_ == State::kDone;
  return step;
}

}  // namespace headrace
