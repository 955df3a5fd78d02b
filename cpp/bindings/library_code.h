#pragma once

#include <Python.h>

#include <string>
#include <vector>

namespace openreg::bindings {

/// Tells the program's own Python code from that of PyTorch, of this package and of Python's
/// standard library: by the folders from which these were imported, since a folder of the program
/// may have any name. Every function needs the GIL, and throws what Python raises.
class LibraryCode {
 public:
  LibraryCode();

  /// Whether `code`, which `frame` runs, is a library's. What PyTorch generates is PyTorch's.
  bool contains(PyCodeObject* code, PyFrameObject* frame) const;

 private:
  bool is_in_package(const std::string& file) const;

  // Folders as prefixes of files: each as Python spells it, and without symbolic links.
  std::vector<std::string> packages_;
  std::vector<std::string> standard_library_;
};

/// A string of Python, such as the name of a file; what has no encoding in UTF-8 is escaped.
std::string utf8(PyObject* string);

}  // namespace openreg::bindings
