// Objects that grow piece by piece.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "headrace/base/result.h"
#include "headrace/format/http_head.h"
#include "headrace/http/message.h"
#include "headrace/store/options.h"

namespace headrace {

// Objects that grow piece by piece, each sent with the handle that the answer to the one before
// gave, and that appear when they are flushed. What is there already would be added to, so they
// have a name of their own, and are renamed: the object at the new name is replaced. Thread: any
// (immutable).
class Appends {
 public:
  virtual ~Appends() = default;
  // Whether this is how a server refuses to start a multipart upload that has none.
  virtual bool lacks_multipart(const Error& refusal) const = 0;
  // Must not be sent twice. `handle` "": of the first piece.
  virtual void build_append(HttpRequest& request, std::string_view name, std::string_view handle,
                            std::span<const std::span<const std::byte>> bytes) const = 0;
  virtual std::string handle(const ResponseHead& head) const = 0;
  virtual void build_flush(HttpRequest& request, std::string_view name,
                           std::string_view handle) const = 0;
  virtual void build_rename(HttpRequest& request, std::string_view from,
                            std::string_view to) const = 0;
  // Whether an object that another host has can be renamed so.
  virtual bool moves_to(std::string_view name) const = 0;
};

// Tells the type and the encoding of an object that is there, where uploads of many requests
// cannot. Thread: any (immutable).
class Describing {
 public:
  virtual ~Describing() = default;
  virtual void build_describe(HttpRequest& request, std::string_view name,
                              const WriteRequest& like) const = 0;
};

}  // namespace headrace
