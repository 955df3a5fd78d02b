// The Python lines that launch commands, for errors and traces (TORCH_OPENREG_STACKS=1).
#include <Python.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/launch_site.h"
#include "bindings/bindings.h"
#include "bindings/library_code.h"
#include "runtime/run_slice.h"

namespace openreg::bindings {

namespace {

template <class T>
nb::object owned(T* object) {
  return nb::steal(reinterpret_cast<PyObject*>(object));
}

/// The lines seen so far, each once, with their numbers. Most of it is guarded by the GIL.
class Lines {
 public:
  static Lines& get() {
    static Lines& lines = *new Lines;  // errors are described until the process ends
    return lines;
  }

  /// The innermost frame of the program itself; 0: all are of libraries. Needs the GIL.
  LaunchSite of_program(PyFrameObject* innermost) {
    nb::object owner;
    for (auto* frame = innermost; frame; frame = PyFrame_GetBack(frame), owner = owned(frame)) {
      if (!is_of_a_library(frame)) return of_line(frame);
    }
    return 0;
  }

  /// Of this frame, which of_program() has looked at.
  LaunchSite of_line(PyFrameObject* frame) {
    auto* const code = PyFrame_GetCode(frame);
    Py_DECREF(code);  // is_of_a_library() keeps it
    const Key key{code, position(frame)};
    if (const auto found = by_position_.find(key); found != by_position_.end()) {
      return found->second;
    }
    std::string words = utf8(code->co_filename) + ":" +
                        std::to_string(PyFrame_GetLineNumber(frame)) + " in " + utf8(code->co_name);
    const std::lock_guard lock(mutex_);
    return by_position_[key] = add(std::move(words));
  }

  /// The innermost frame of the program or, if there is none, of a library.
  LaunchSite of_frame(PyFrameObject* innermost) {
    const auto line = of_program(innermost);
    return line != 0 ? line : of_line(innermost);
  }

  LaunchSite of_words(const std::string& words) {
    const std::lock_guard lock(mutex_);
    const auto [found, is_new] = by_words_.try_emplace(words, 0);
    if (is_new) found->second = add(words);
    return found->second;
  }

  std::string describe(LaunchSite site) const {
    const std::lock_guard lock(mutex_);
    return site != 0 && site <= words_.size() ? words_[site - 1] : std::string();
  }

 private:
  struct Key {
    PyCodeObject* code;
    int position;

    bool operator==(const Key&) const = default;
  };
  struct Hash {
    std::size_t operator()(const Key& key) const noexcept {
      return std::hash<void*>()(key.code) * 31 + static_cast<std::size_t>(key.position);
    }
  };

  // Finding the line in a code object takes longer than reading the position.
  static int position(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    return PyFrame_GetLineNumber(frame);
#endif
  }

  // Reading from Python can run other code of the program, which may launch commands. So everything
  // is read before it is noted.
  bool is_of_a_library(PyFrameObject* frame) {
    auto* const code = PyFrame_GetCode(frame);
    const nb::object owner = owned(code);
    if (const auto found = of_libraries_.find(code); found != of_libraries_.end()) {
      return found->second;
    }
    if (!libraries_) {
      LibraryCode libraries;
      libraries_ = std::move(libraries);
    }
    const bool result = libraries_->contains(code, frame);
    // The reference is kept, so that no other code object gets this address.
    if (of_libraries_.try_emplace(code, result).second) Py_INCREF(code);
    return result;
  }

  LaunchSite add(std::string words) {
    words_.push_back(std::move(words));
    return static_cast<LaunchSite>(words_.size());
  }

  std::optional<LibraryCode> libraries_;
  std::unordered_map<PyCodeObject*, bool> of_libraries_;
  std::unordered_map<Key, LaunchSite, Hash> by_position_;
  mutable std::mutex mutex_;  // guards what follows; a thread that holds it must not take the GIL
  std::unordered_map<std::string, LaunchSite> by_words_;
  std::vector<std::string> words_;
};

// The line that called the backward pass. Python does not say which of its threads wait for which
// pass, so it is known if all that wait are at the same line. 0: it is unknown.
LaunchSite of_callers_of_backward() {
  const auto frames = nb::steal<nb::dict>(PyObject_CallNoArgs(PySys_GetObject("_current_frames")));
  if (!frames.is_valid()) nb::raise_python_error();
  LaunchSite line = 0;
  for (const auto& [thread, frame] : frames) {
    auto* const innermost = reinterpret_cast<PyFrameObject*>(frame.ptr());
    auto* const code = PyFrame_GetCode(innermost);
    const nb::object owner = owned(code);
    if (PyUnicode_CompareWithASCIIString(code->co_name, "_engine_run_backward") != 0) continue;
    const auto of_thread = Lines::get().of_frame(innermost);
    if (line != 0 && line != of_thread) return 0;
    line = of_thread;
  }
  return line;
}

// Autograd's threads have no frames, or those of a compiled function; the function that they
// compute identifies the work. Hooks in C++, such as those of DDP, run when it has returned.
LaunchSite of_backward_pass() {
  const auto node = torch::autograd::get_current_node();
  if (!node && torch::autograd::get_current_graph_task_id() < 0) return 0;
  std::string words = node ? "the backward pass of " + node->name() : "a hook of the backward pass";
  const auto caller = Lines::get().describe(of_callers_of_backward());
  if (!caller.empty()) words += ", called by " + caller;
  return Lines::get().of_words(words);
}

// find(the thread's innermost frame, which may be null), with the GIL.
template <class Find>
LaunchSite of_this_thread(Find find) noexcept {
  // Launches from within a command have no line in the program.
  if (in_command()) return 0;
  // A thread that Python does not know has no frames, and while Python finalises none are read.
  if (!Py_IsInitialized() || !PyGILState_GetThisThreadState()) return 0;
  try {
    const nb::gil_scoped_acquire gil;
    const nb::error_scope raised;  // what is freed while an exception is raised may launch commands
    auto* const frame = PyThreadState_GetFrame(PyThreadState_Get());
    nb::object owner;
    if (frame) owner = owned(frame);
    return find(frame);
  } catch (const std::exception&) {  // no memory for it
    return 0;
  }
}

LaunchSite here() noexcept {
  return of_this_thread([](PyFrameObject* frame) {
    if (!frame) return of_backward_pass();
    if (const auto line = Lines::get().of_program(frame)) return line;
    const auto line = of_backward_pass();
    return line != 0 ? line : Lines::get().of_line(frame);
  });
}

LaunchSite in_program() noexcept {
  return of_this_thread([](PyFrameObject* frame) { return Lines::get().of_program(frame); });
}

std::string describe(LaunchSite site) { return Lines::get().describe(site); }

}  // namespace

void init_launch_sites(nb::module_&) {
  static constexpr LaunchSiteFinder kFinder{
      .here = &here, .in_program = &in_program, .describe = &describe};
  install_launch_site_finder(kFinder);
}

}  // namespace openreg::bindings
