// What a cluster of AIStore knows besides its buckets.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace faultserver {

// Thread: confined (the server's lock guards it).
struct AisState {
  // 'A': as 3.23 answers; 'B': as 5.0 does.
  char personality = 'B';
  char first_personality = 'B';  // From the command line; a reset goes back to it.

  // The targets among which objects are placed, by their number; empty: all. A target that leaves
  // the map takes its objects along until the cluster is rebalanced.
  std::vector<size_t> homes{};
  uint64_t placement = 0;  // Raised by every rebalance.

  bool signs_redirects = false;
  bool refuses_direct = false;  // Requests to a target that the proxy has not redirected.
  bool tokens_have_expired = false;
  uint64_t last_number = 0;  // Of uploads, batches and redirects.

  struct Append {
    std::string bucket{}, object{}, bytes{};
  };
  std::map<std::string, Append> appends{};  // By what their handles begin with.

  // What GetBatch does where the server loses, cuts or hangs.
  struct Moss {
    enum class Missing { kByOwner, kEndsEarly, kMarker };
    enum class OutOfRange { kSeeded, kHangs, kEmpty, kWhole };
    Missing missing = Missing::kByOwner;
    OutOfRange out_of_range = OutOfRange::kSeeded;
    uint64_t max_soft_errors = 8;
    uint64_t seed = 1;
    // How many entries of a batch are delivered before the archive ends as if it were complete.
    uint64_t ends_after = UINT64_MAX;
  } moss{};
  std::map<std::string, size_t> batches{};  // Prepared ones, by work id: the target that has them.
};

}  // namespace faultserver
