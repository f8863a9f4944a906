// The module's classes and functions with their documentation, which is written in one place:
// python/headrace/_engine.pyi. The build makes a table of its signatures and docstrings
// (documentation.py), and everything that is defined here looks itself up in that table by name. So
// help() shows the stub's text, and a change of it compiles one small file.
#pragma once

#include <nanobind/nanobind.h>
// Most parameters and results are of these types, which nanobind converts only where it sees how.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>

#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace headrace::python {

namespace nb = nanobind;
using namespace nb::literals;

struct Documentation {
  std::string_view name;        // "split_url"; of a member "ObjectIndex.filter"; of the module ""
  const char* signature;        // as nb::sig takes it; empty for classes and properties
  std::string_view parameters;  // without `self`, as parameters_of() writes them
  const char* text;             // empty if there is none
};

// Made from the stub; sorted by name.
std::span<const Documentation> all_documentation();

// What the stub says of `name`. Raises ImportError if it says nothing, or declares other
// parameters; empty `parameters` are not compared.
const Documentation& documentation(std::string_view name, std::string_view parameters = {});

// The parameters that nanobind is told of, for example "items, into=, *, sum_kind, ".
template <class... Extra>
std::string parameters_of(const Extra&... extra) {
  std::string text;
  const auto add = [&text]<class Each>(const Each& each) {
    using Argument = nb::detail::arg_traits<Each>;
    if constexpr (Argument::is_arg) {
      text.append(each.name_).append(Argument::has_default ? "=, " : ", ");
    } else if constexpr (std::is_same_v<Each, nb::kw_only>) {
      text.append("*, ");
    }
  };
  (add(extra), ...);
  return text;
}

class Module : public nb::module_ {
 public:
  explicit Module(const nb::module_& module) : nb::module_(module) {
    attr("__doc__") = documentation("").text;
  }

  template <class Function, class... Extra>
  Module& def(const char* name, Function&& function, const Extra&... extra) {
    const Documentation& found = documentation(name, parameters_of(extra...));
    nb::module_::def(name, std::forward<Function>(function), nb::sig(found.signature), found.text,
                     extra...);
    return *this;
  }
};

template <class T>
class Class : public nb::class_<T> {
  using Base = nb::class_<T>;

 public:
  template <class... Extra>
  Class(Module& module, const char* name, const Extra&... extra)
      : Base(module, name, documentation(name).text, extra...), name_(name) {}

  template <class Function, class... Extra>
  Class& def(const char* name, Function&& function, const Extra&... extra) {
    const Documentation& found = of_member(name, parameters_of(extra...));
    Base::def(name, std::forward<Function>(function), nb::sig(found.signature), found.text,
              extra...);
    return *this;
  }

  template <class... Arguments, class... Extra>
  Class& def(nb::init<Arguments...>&& init, const Extra&... extra) {
    const Documentation& found = of_member("__init__", parameters_of(extra...));
    Base::def(std::move(init), nb::sig(found.signature), found.text, extra...);
    return *this;
  }

  template <class Function, class... Extra>
  Class& def_static(const char* name, Function&& function, const Extra&... extra) {
    const Documentation& found = of_member(name, parameters_of(extra...));
    Base::def_static(name, std::forward<Function>(function), nb::sig(found.signature), found.text,
                     extra...);
    return *this;
  }

  template <class Getter>
  Class& def_prop_ro(const char* name, Getter&& getter) {
    Base::def_prop_ro(name, std::forward<Getter>(getter), of_member(name).text);
    return *this;
  }

  template <class Field>
  Class& def_ro(const char* name, Field T::* field) {
    Base::def_ro(name, field, of_member(name).text);
    return *this;
  }

 private:
  const Documentation& of_member(std::string_view member, std::string_view parameters = {}) const {
    return documentation(std::string(name_).append(".").append(member), parameters);
  }

  const char* name_;
};

}  // namespace headrace::python
