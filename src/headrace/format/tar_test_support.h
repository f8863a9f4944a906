// Writes small archives, which only tests and fuzzers need.
#pragma once

#include <cstdio>
#include <numeric>
#include <string>
#include <string_view>

#include "headrace/base/result.h"

namespace headrace {

// A number in octal digits, as headers have them.
inline std::string tar_octal(uint64_t value, size_t size) {
  std::string digits(size - 1, '0');
  for (size_t i = digits.size(); i-- > 0; value /= 8)
    digits[i] = static_cast<char>('0' + value % 8);
  return digits + '\0';
}

// Makes the checksum of a header right.
inline void tar_sum(std::string& header) {
  header.replace(148, 8, 8, ' ');
  const auto sum =
      std::accumulate(header.begin(), header.end(), uint64_t{0},
                      [](auto total, char c) { return total + static_cast<unsigned char>(c); });
  header.replace(148, 8, tar_octal(sum, 7) + ' ');
}

// A header of a name of up to 100 bytes.
inline std::string tar_header(std::string_view name, uint64_t size_bytes, char type = '0') {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 8, tar_octal(0644, 8));
  header.replace(124, 12, tar_octal(size_bytes, 12));
  header[156] = type;
  header.replace(257, 8, std::string_view("ustar\00000", 8));
  tar_sum(header);
  return header;
}

inline std::string tar_padded(std::string_view bytes) {
  std::string out(bytes);
  out.resize((out.size() + 511) / 512 * 512, '\0');
  return out;
}

// A file, with a name of any length (as GNU tar writes it).
inline std::string tar_file(std::string_view name, std::string_view bytes) {
  std::string out;
  if (name.size() > 100) {
    out += tar_header("././@LongLink", name.size() + 1, 'L') + tar_padded(std::string(name) + '\0');
  }
  return out + tar_header(name.substr(0, 100), bytes.size()) + tar_padded(bytes);
}

inline std::string tar_end() { return std::string(1024, '\0'); }

// One record of an extended header.
inline std::string pax_record(std::string_view key, std::string_view value) {
  size_t size = key.size() + value.size() + 3;
  while (std::to_string(size).size() + key.size() + value.size() + 3 != size) {
    size = std::to_string(size).size() + key.size() + value.size() + 3;
  }
  return cat(size, " ", key, "=", value, "\n");
}

inline std::string pax_header(std::string_view records, char type = 'x') {
  return tar_header("pax", records.size(), type) + tar_padded(records);
}

}  // namespace headrace
