#pragma once

#include "convert.h"
#include "headrace/store/transfer/credentials.h"

namespace headrace::python {

using CredentialsHandle = OfThisProcess<Credentials>;
using QueueHandle = OfThisProcess<CredentialsQueue>;

}  // namespace headrace::python
