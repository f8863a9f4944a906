#include "bind.h"
#include "errors.h"
#include "listing_handle.h"
#include "waiting.h"

#include "headrace/dataset/object_index.h"
#include "headrace/dataset/roots.h"
#include "object_index.h"

namespace headrace::python {

Listing& ListingHandle::listing() const {
  if (!listing_.usable()) {
    raise(Error(Code::kCancelled, "this listing was started before a fork, in the parent process"));
  }
  return *listing_;
}

void ListingHandle::wait() const {
  Listing& self = listing();
  wait_interruptibly([&self](steady_clock::time_point until,
                             MayBlock permit) { return self.wait_until(until, permit); },
                     [&self] { self.cancel(); });
}

nb::object ListingHandle::next() const {
  wait();
  const std::optional<ColumnPage> page =
      value_or_raise(without_gil([this](MayBlock permit) { return listing_->take(permit); }));
  if (!page) return nb::none();
  nb::list objects;
  for (size_t i = 0; i < page->size(); ++i) objects.append(nb::cast(page->info(i)));
  return objects;
}

nb::object ListingHandle::index(std::string_view root, nb::handle on_progress) const {
  Listing& self = listing();
  ObjectIndexBuilder builder;
  builder.add_root(value_or_raise(normal_root(root)));
  // Takes pages until it is time to check for signals. True at the end.
  const auto take_some = [&](steady_clock::time_point until, MayBlock permit) -> Result<bool> {
    while (self.wait_until(until, permit) && steady_clock::now() < until) {
      const Result<std::optional<ColumnPage>> page = self.take(permit);
      if (!page) return std::unexpected(page.error());
      if (!*page) return true;
      for (size_t i = 0; i < (*page)->size(); ++i) builder.add(**page, i);
    }
    return false;
  };
  for (bool done = false; !done;) {
    Result<bool> taken(false);
    wait_interruptibly(
        [&](steady_clock::time_point until, MayBlock permit) {
          taken = take_some(until, permit);
          return !taken || *taken || !on_progress.is_none();
        },
        [&self] { self.cancel(); });
    done = value_or_raise(std::move(taken));
    if (on_progress.is_none()) continue;
    const nb::int_ names(self.progress().names);
    in_python([&] { return on_progress(names); });
  }
  return nb::cast(IndexHandle{.index = value_or_raise(without_gil(
                                  [&builder](MayBlock) { return std::move(builder).build(); }))});
}

void ListingHandle::cancel() const {
  if (listing_.usable()) without_gil([this](MayBlock) { listing_->cancel(); });
}

nb::tuple ListingHandle::progress() const {
  const ListingProgress progress = listing().progress();
  return nb::make_tuple(progress.names, progress.requests, progress.complete,
                        progress.placeholders);
}

void bind_listing(Module& module) {
  Class<ListingHandle>(module, "Listing")
      .def("next", &ListingHandle::next)
      .def("index", &ListingHandle::index, "root"_a, "on_progress"_a.none() = nb::none())
      .def("cancel", &ListingHandle::cancel)
      .def("progress", &ListingHandle::progress);
}

}  // namespace headrace::python
