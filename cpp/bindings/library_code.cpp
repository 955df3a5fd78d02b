#include "bindings/library_code.h"

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "bindings/bindings.h"

namespace openreg::bindings {

namespace {

namespace fs = std::filesystem;

std::string text_of(nb::object bytes) {
  if (!bytes.is_valid()) nb::raise_python_error();
  return {PyBytes_AS_STRING(bytes.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(bytes.ptr()))};
}

/// The name of a file as the system knows it; empty if it is no string.
std::string file_name(nb::handle name) {
  if (!nb::isinstance<nb::str>(name)) return {};
  return text_of(nb::steal(PyUnicode_EncodeFSDefault(name.ptr())));
}

void add(std::vector<std::string>& folders, const fs::path& folder) {
  folders.push_back(fs::absolute(folder).lexically_normal() / "");
  std::error_code error;
  const fs::path real = fs::canonical(folder, error);
  if (!error) folders.push_back(real / "");
}

/// The file's path below the first of the folders that contains it; empty if none does.
std::string below(const std::vector<std::string>& folders, const std::string& file) {
  if (!fs::path(file).is_absolute()) return {};  // relative to an unknown folder
  std::error_code error;
  for (const fs::path& path : {fs::path(file).lexically_normal(), fs::canonical(file, error)}) {
    const std::string& text = path.native();
    for (const std::string& folder : folders) {
      if (text.starts_with(folder)) return text.substr(folder.size());
    }
  }
  return {};
}

/// Whether `name` is the name, the file or the folder of a module of the standard library.
bool is_standard(std::string_view name) {
  const nb::str module(name.data(), std::min(name.find_first_of("./>"), name.size()));
  return PySet_Contains(PySys_GetObject("stdlib_module_names"), module.ptr()) == 1;
}

// An attribute of a module that has been imported. Importing it again could wait for another
// thread.
nb::object attribute(const char* module, const char* name) {
  return nb::steal(PyImport_GetModule(nb::str(module).ptr())).attr(name);
}

}  // namespace

LibraryCode::LibraryCode() {
  for (const nb::handle each : attribute("torch", "__path__")) {
    const fs::path folder = file_name(each);
    add(packages_, folder);
    add(packages_, folder.parent_path() / "functorch");  // comes with PyTorch
  }
  // PyTorch's deprecated functions are wrapped in one of typing_extensions.
  packages_.push_back(
      fs::path(file_name(attribute("typing_extensions", "__file__"))).replace_extension());
  // That of this package, or of the one that contains it.
  const std::string name = OPENREG_PACKAGE;
  const std::string outermost = name.substr(0, name.find('.'));
  for (const nb::handle each : attribute(outermost.c_str(), "__path__")) {
    add(packages_, file_name(each));
  }
  add(standard_library_, fs::path(file_name(attribute("os", "__file__"))).parent_path());
}

bool LibraryCode::is_in_package(const std::string& file) const {
  return !below(packages_, file).empty();
}

bool LibraryCode::contains(PyCodeObject* code, PyFrameObject* frame) const {
  const std::string file = file_name(code->co_filename);
  // The name of a module that is part of the interpreter, as in <frozen importlib._bootstrap>. The
  // standard library's folder may contain other modules, as in site-packages.
  constexpr std::string_view kFrozen = "<frozen ";
  if (file.starts_with(kFrozen)) return is_standard(std::string_view(file).substr(kFrozen.size()));
  const std::string standard = below(standard_library_, file);
  if (is_in_package(file) || (!standard.empty() && is_standard(standard))) return true;

  // Code whose file says nothing: generated in a module, or compiled elsewhere.
  const nb::object globals = nb::handle(reinterpret_cast<PyObject*>(frame)).attr("f_globals");
  const auto global = [&](const char* name) { return file_name(globals.attr("get")(name)); };
  // Inductor's programs lie in its cache, a folder of the user's choice; PyTorch names their
  // modules.
  return is_in_package(global("__file__")) ||
         global("__name__").starts_with("torch._inductor.runtime.compile_tasks.");
}

std::string utf8(PyObject* string) {
  return text_of(nb::steal(PyUnicode_AsEncodedString(string, "utf-8", "backslashreplace")));
}

}  // namespace openreg::bindings
