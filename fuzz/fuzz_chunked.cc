// Decoding in pieces is decoding at once, in place too; what is encoded is decoded.
#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>

#include "fuzz/check.h"
#include "headrace/format/chunked.h"

using namespace headrace;
using fuzz::check;

namespace {

struct Outcome {
  std::string body;
  size_t consumed = 0;
  bool done = false, failed = false;
  bool operator==(const Outcome&) const = default;
};

Outcome decode_at_once(std::string_view in) {
  Outcome outcome;
  std::string room(in.size(), '\0');
  ChunkedDecoder decoder;
  const auto step = decoder.decode(fuzz::as_bytes(in), std::as_writable_bytes(std::span(room)));
  outcome.failed = !step.has_value();
  if (outcome.failed) return outcome;
  check(step->consumed <= in.size() && step->produced <= step->consumed);
  check(step->done == decoder.done() && (step->done || step->consumed == in.size()));
  outcome.body = room.substr(0, step->produced);
  outcome.consumed = step->consumed;
  outcome.done = step->done;
  return outcome;
}

// With any room, with none, and with data that passes the decoder by.
Outcome decode_in_pieces(std::string_view in, fuzz::Choices& choices) {
  Outcome outcome;
  ChunkedDecoder decoder;
  while (outcome.consumed < in.size() && !outcome.done) {
    const std::string_view rest = in.substr(outcome.consumed);
    if (const uint64_t next = decoder.chunk_remaining_bytes(); next != 0 && choices() % 4 == 0) {
      const size_t taken = static_cast<size_t>(std::min<uint64_t>(next, rest.size()));
      decoder.skip_data(taken);
      outcome.body += rest.substr(0, taken);
      outcome.consumed += taken;
      continue;
    }
    const std::string_view piece = rest.substr(0, 1 + choices() % 16);
    std::string room(choices() % 16, '\0');
    const auto step =
        decoder.decode(fuzz::as_bytes(piece), std::as_writable_bytes(std::span(room)));
    if (!step) {
      check(!decoder.decode(fuzz::as_bytes("0"), {}).has_value());
      Outcome failed;
      failed.failed = true;
      return failed;
    }
    check(step->consumed <= piece.size() && step->produced <= room.size());
    check(step->done || step->consumed == piece.size() || step->produced == room.size());
    outcome.body += room.substr(0, step->produced);
    outcome.consumed += step->consumed;
    outcome.done = step->done;
  }
  return outcome;
}

std::string encode(std::string_view body, fuzz::Choices& choices) {
  std::string out;
  while (!body.empty()) {
    const std::string_view chunk = body.substr(0, 1 + choices() % 40);
    char digits[8];
    out.append(digits, std::to_chars(digits, digits + 8, chunk.size(), 16).ptr);
    if (choices() % 4 == 0) out += " ;name=\"value\"";
    out += cat("\r\n", chunk, "\r\n");
    body.remove_prefix(chunk.size());
  }
  out += "0\r\n";
  if (choices() % 4 == 0) out += "Trailer: x\r\n";
  return out + "\r\n";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view in = fuzz::as_text(data, size);
  fuzz::Choices choices(in);

  const Outcome at_once = decode_at_once(in);
  check(decode_in_pieces(in, choices) == at_once);

  std::string memory(in);
  const auto bytes = std::as_writable_bytes(std::span(memory));
  ChunkedDecoder in_place;
  const auto step = in_place.decode(bytes, bytes);
  check(step.has_value() == !at_once.failed);
  if (step) check(memory.substr(0, step->produced) == at_once.body);

  const std::string encoded = encode(in, choices);
  const Outcome back = decode_at_once(encoded + "HTTP/1.1");
  check(back.done && back.body == in && back.consumed == encoded.size());
  check(decode_in_pieces(encoded, choices).body == in);
  return 0;
}
