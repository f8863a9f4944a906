#include "s3/xml.h"

#include <utility>

#include "text.h"

namespace faultserver::s3 {

std::string escape(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 16);
  for (const char c : text) {
    switch (c) {
      case '&': out += "&amp;"; break;
      case '<': out += "&lt;"; break;
      case '>': out += "&gt;"; break;
      case '"': out += "&quot;"; break;
      default:
        if (static_cast<uint8_t>(c) < 0x20) {
          // XML 1.0 has no such characters, not even as references, except tab and line ends.
          out += "&#x" + hex({&c, 1}) + ";";
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string wrapped(std::string_view name, std::string_view xml) {
  std::string out;
  out.reserve(xml.size() + 2 * name.size() + 5);
  out += '<';
  out += name;
  out += '>';
  out += xml;
  out += "</";
  out += name;
  out += '>';
  return out;
}

std::string element(std::string_view name, std::string_view text) {
  return wrapped(name, escape(text));
}

std::string element(std::string_view name, uint64_t number) {
  return wrapped(name, std::to_string(number));
}

Response document(std::string_view root, std::string_view xml) {
  std::string out = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<";
  out.reserve(out.size() + xml.size() + 2 * root.size() + 80);
  out += root;
  out += " xmlns=\"";
  out += kNamespace;
  out += "\">";
  out += xml;
  out += "</";
  out += root;
  out += '>';
  Response response{.body = Body(std::move(out))};
  response.headers = {{"Content-Type", "application/xml"}};
  return response;
}

bool is_result(const Response& response) {
  return find_header(response.headers, "content-type") == "application/xml" &&
         !has_header(response.headers, "accept-ranges");
}

std::string unescaped(std::string_view text) {
  constexpr std::pair<std::string_view, char> kNames[] = {
      {"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
  std::string out;
  while (!text.empty()) {
    if (text.front() != '&') {
      out += text.front();
      text.remove_prefix(1);
      continue;
    }
    const size_t end = text.find(';');
    const std::string_view whole = text.substr(0, end == std::string_view::npos ? 1 : end + 1);
    bool known = false;
    for (const auto& [name, character] : kNames) {
      if (whole != name) continue;
      out += character;
      known = true;
    }
    if (!known && whole.starts_with("&#")) {
      const bool is_hex = whole.size() > 3 && (whole[2] == 'x' || whole[2] == 'X');
      const std::string digits(whole.substr(is_hex ? 3 : 2, whole.size() - (is_hex ? 4 : 3)));
      append_utf8(out,
                  static_cast<uint32_t>(std::strtoul(digits.c_str(), nullptr, is_hex ? 16 : 10)));
      known = true;
    }
    if (!known) out += whole;
    text.remove_prefix(whole.size());
  }
  return out;
}

namespace {

// Where the content of the first element called `name` begins and ends, and what follows it.
struct Found {
  std::string_view content, rest;
  bool is_there = false;
};

Found find_element(std::string_view xml, std::string_view name) {
  size_t at = 0;
  while ((at = xml.find('<', at)) != std::string_view::npos) {
    const std::string_view tag = xml.substr(at + 1);
    const size_t after = name.size();
    const bool is_it = tag.starts_with(name) && tag.size() > after &&
                       (tag[after] == '>' || tag[after] == ' ' || tag[after] == '/');
    const size_t tag_end = tag.find('>');
    if (tag_end == std::string_view::npos) return {};
    if (!is_it) {
      at += tag_end + 2;
      continue;
    }
    const std::string_view rest = tag.substr(tag_end + 1);
    if (tag[tag_end - 1] == '/') return {.content = {}, .rest = rest, .is_there = true};
    const std::string closing = "</" + std::string(name) + ">";
    const size_t end = rest.find(closing);
    if (end == std::string_view::npos) return {};
    return {.content = rest.substr(0, end),
            .rest = rest.substr(end + closing.size()),
            .is_there = true};
  }
  return {};
}

}  // namespace

std::string inner(std::string_view xml, std::string_view name) {
  return unescaped(find_element(xml, name).content);
}

std::vector<std::string_view> each(std::string_view xml, std::string_view name) {
  std::vector<std::string_view> out;
  for (Found found = find_element(xml, name); found.is_there;
       found = find_element(found.rest, name)) {
    out.push_back(found.content);
  }
  return out;
}

}  // namespace faultserver::s3
