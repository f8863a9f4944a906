// Inputs that are tars, for the fuzzers that read some.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "fuzz/check.h"
#include "headrace/format/tar_test_support.h"

namespace headrace::fuzz {

// Makes the sums of most headers right. Without it, no input but those of the corpus would have a
// header that is right.
inline void correct_sums(std::string& archive, Choices& choices) {
  for (size_t at = 0; at + 512 <= archive.size(); at += 512) {
    const auto block = std::string_view(archive).substr(at, 512);
    if (block.substr(257, 5) != "ustar" || choices() % 16 == 0) continue;
    std::string header(block);
    tar_sum(header);
    archive.replace(at, 512, header);
  }
}

}  // namespace headrace::fuzz
