#pragma once

#include <memory>

#include "headrace/engine.h"
#include "headrace/store/listing/listing.h"
#include "this_process.h"

namespace headrace::python {

// A listing in progress. Thread: confined (the GIL).
class ListingHandle {
 public:
  ListingHandle(std::shared_ptr<Engine> engine, std::shared_ptr<Listing> listing)
      : engine_(std::move(engine)), listing_(std::move(listing)) {}
  ListingHandle(ListingHandle&&) noexcept = default;
  ListingHandle& operator=(ListingHandle&&) = delete;
  // Ends the listing early.
  ~ListingHandle() { cancel(); }

  // The next objects, in order; None at the end.
  nb::object next() const;
  void cancel() const;
  nb::tuple progress() const;
  // All remaining objects, in order. `on_progress(names)` is called now and then with the number of
  // names that have arrived.
  nb::object index(std::string_view root, nb::handle on_progress) const;

 private:
  Listing& listing() const;
  void wait() const;

  OfThisProcess<Engine> engine_;  // outlives the store, which the listing holds
  OfThisProcess<Listing> listing_;
};

}  // namespace headrace::python
