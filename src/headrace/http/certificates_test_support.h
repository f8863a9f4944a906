// Certificates of a CA that exists for this program only.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "headrace/store/fault_server_test_support.h"

namespace headrace {

inline void run_quietly(const std::string& command) {
  ASSERT_EQ(std::system(cat(command, " >/dev/null 2>&1").c_str()), 0) << command;
}

// Two CAs, and a certificate for this host and one for another by the first.
class Certificates {
 public:
  Certificates() {
    std::string name = (std::filesystem::temp_directory_path() / "headrace-tls-XXXXXX").string();
    EXPECT_NE(::mkdtemp(name.data()), nullptr);
    directory_ = name;
    for (const char* ca : {"ca", "stranger"}) {
      run_quietly(
          cat("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 "
              "-subj '/CN=headrace test ",
              ca, "' -keyout ", path(ca), ".key -out ", path(ca), ".pem"));
    }
    issue("here", "IP:127.0.0.1,DNS:localhost");
    issue("elsewhere", "DNS:elsewhere.test");
    run_quietly(cat("openssl ec -aes128 -passout pass:secret -in ", path("here.key"), " -out ",
                    path("encrypted.key")));
  }
  ~Certificates() { std::filesystem::remove_all(directory_); }

  std::string path(std::string_view name) const { return cat(directory_.string(), "/", name); }
  ServerOptions server(std::string_view name) const {
    return {.bind = "127.0.0.1",
            .certificate_file = path(cat(name, ".pem")),
            .key_file = path(cat(name, ".key"))};
  }

 private:
  void issue(const std::string& name, const std::string& alternative_names) {
    std::ofstream(path("extensions")) << "subjectAltName=" << alternative_names << "\n";
    run_quietly(cat("openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=",
                    name, " -keyout ", path(name), ".key -out ", path(name), ".request"));
    run_quietly(cat("openssl x509 -req -days 2 -in ", path(name), ".request -CA ", path("ca.pem"),
                    " -CAkey ", path("ca.key"), " -CAcreateserial -extfile ", path("extensions"),
                    " -out ", path(name), ".pem"));
  }
  std::filesystem::path directory_;
};

inline const Certificates& certificates() {
  static const Certificates made;
  return made;
}

}  // namespace headrace
