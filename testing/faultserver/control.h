// The control API: `/_control/...`.
#pragma once

#include "http.h"
#include "world.h"

namespace faultserver {

// Takes the world's lock itself.
Response control(World& world, Request& request);

}  // namespace faultserver
