#include "bind_credentials.h"

#include "bind.h"
#include "waiting.h"

namespace headrace::python {
namespace {

std::optional<CredentialsHandle> next(const QueueHandle& self, double timeout_s) {
  const auto until = steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(
                                               std::chrono::duration<double>(timeout_s));
  // The thread that serves the queue is not the main thread, so it need not check for signals.
  std::shared_ptr<Credentials> credentials =
      without_gil([&self, until](MayBlock permit) { return self->next(until, permit); });
  if (!credentials) return std::nullopt;
  return CredentialsHandle(std::move(credentials));
}

void provide(const CredentialsHandle& self, const Credential& credential,
             std::optional<double> expires_in_s) {
  Credential provided = credential;
  if (expires_in_s) {
    provided.expires_at = steady_clock::now() + std::chrono::duration_cast<steady_clock::duration>(
                                                    std::chrono::duration<double>(*expires_in_s));
  }
  without_gil([&self, &provided](MayBlock) { self->provide(std::move(provided)); });
}

void fail(const CredentialsHandle& self, std::string message, bool retryable) {
  Error error(retryable ? Code::kUnavailable : Code::kPermissionDenied, std::move(message));
  without_gil([&self, &error](MayBlock) { self->fail(std::move(error)); });
}

}  // namespace

void bind_credentials(Module& module) {
  Class<Credential>(module, "Credential")
      .def_static(
          "of_authorization",
          [](std::string authorization) {
            return Credential{.authorization = std::move(authorization)};
          },
          "authorization"_a)
      .def_static(
          "of_keys",
          [](std::string access_key, std::string secret_key, std::string session_token) {
            return Credential{.access_key = std::move(access_key),
                              .secret_key = std::move(secret_key),
                              .session_token = std::move(session_token)};
          },
          "access_key"_a, "secret_key"_a, "session_token"_a = "");

  Class<CredentialsHandle>(module, "Credentials")
      .def_static(
          "fixed",
          [](const Credential& credential) {
            return CredentialsHandle(Credentials::fixed(credential));
          },
          "credential"_a)
      .def_static(
          "from_queue",
          [](const QueueHandle& queue, uint64_t id) {
            return CredentialsHandle(Credentials::from_queue(queue.shared(), id));
          },
          "queue"_a, "id"_a)
      .def_prop_ro("id", [](const CredentialsHandle& self) { return self->id(); })
      .def("provide", &provide, "credential"_a, "expires_in_s"_a.none())
      .def("fail", &fail, "message"_a, nb::kw_only(), "retryable"_a);

  Class<QueueHandle>(module, "CredentialsQueue")
      .def("__init__",
           [](QueueHandle* self) { new (self) QueueHandle(std::make_shared<CredentialsQueue>()); })
      .def("next", &next, "timeout_s"_a)
      .def("stop", [](const QueueHandle& self) { self->stop(); });
}

}  // namespace headrace::python
