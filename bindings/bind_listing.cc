#include "listing_handle.h"

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
  const std::optional<ListedPage> page = value_or_raise(
      without_gil([this](MayBlock permit) { return listing_->take(permit); }));
  if (!page) return nb::none();
  nb::list objects;
  for (size_t i = 0; i < page->size(); ++i) objects.append(nb::cast(page->info(i)));
  return objects;
}

void ListingHandle::cancel() const {
  if (listing_.usable()) without_gil([this](MayBlock) { listing_->cancel(); });
}

nb::tuple ListingHandle::progress() const {
  const ListingProgress progress = listing().progress();
  return nb::make_tuple(progress.names, progress.requests, progress.complete);
}

void bind_listing(nb::module_& module) {
  nb::class_<ListingHandle>(module, "Listing", "The objects of a bucket as they arrive.")
      .def("next", &ListingHandle::next, nb::sig("def next(self) -> list[ObjectInfo] | None"),
           "Waits; the next objects in the order of names, None at the end.")
      .def("cancel", &ListingHandle::cancel, "Ends what is under way.")
      .def("progress", &ListingHandle::progress,
           nb::sig("def progress(self) -> tuple[int, int, bool]"),
           "Names that have arrived, requests sent, whether everything has arrived.");
}

}  // namespace headrace::python
