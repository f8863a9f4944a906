// XML, written and read as far as S3's bodies need it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "http.h"

namespace faultserver::s3 {

inline constexpr std::string_view kNamespace = "http://s3.amazonaws.com/doc/2006-03-01/";

// Escapes markup; control characters become references, as the service writes them.
std::string escape(std::string_view text);
std::string element(std::string_view name, std::string_view text);
std::string element(std::string_view name, uint64_t number);
// Of XML that is whole already.
std::string wrapped(std::string_view name, std::string_view xml);

// Whether the body is a result of the server's, and not an object that happens to be XML.
bool is_result(const Response& response);

// A document with the namespace of S3 on its root.
Response document(std::string_view root, std::string_view xml);

// The text of the first child called `name`, unescaped; empty if there is none.
std::string inner(std::string_view xml, std::string_view name);
std::string unescaped(std::string_view text);
// What lies within each element called `name`, as it stands.
std::vector<std::string_view> each(std::string_view xml, std::string_view name);

}  // namespace faultserver::s3
