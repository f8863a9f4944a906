#include "headrace/base/random.h"

#include <sys/random.h>

namespace headrace {

uint64_t random_number() {
  uint64_t number = 0;
  // Up to 256 bytes come whole or, if a signal interrupts the wait for the first seed, not at all.
  while (::getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

}  // namespace headrace
