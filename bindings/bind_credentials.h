#pragma once

#include "headrace/store/transfer/credentials.h"
#include "this_process.h"

namespace headrace::python {

using CredentialsHandle = OfThisProcess<Credentials>;
using QueueHandle = OfThisProcess<CredentialsQueue>;

}  // namespace headrace::python
