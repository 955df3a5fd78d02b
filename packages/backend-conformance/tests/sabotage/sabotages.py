"""Backends with one fault each: what is changed in the generated project, and the checks that have to find it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Sabotage:
    """A change of one source of the project `acme`."""

    name: str
    file: str  # in csrc
    old: str  # occurs once
    new: str
    found_by: tuple[str, ...]  # ids of checks, each of which must be wrong, crash or hang


SABOTAGES = [
    # --- order ---
    Sabotage(
        "events_block_nothing",
        "guard.cpp",
        "if (event != nullptr) as_event(event).wait(to_driver(stream));",
        "",
        ("events.waiting_stream_sees_earlier_work", "stream_order.wait_stream_orders_streams"),
    ),
    Sabotage(
        "events_synchronize_nothing",
        "guard.cpp",
        "if (event != nullptr) as_event(event).synchronize();",
        "",
        ("events.synchronize_waits_for_the_event",),
    ),
    Sabotage(
        "streams_synchronize_nothing",
        "guard.cpp",
        "    to_driver(stream).synchronize();",
        "",
        ("streams.synchronize_waits_for_the_stream",),
    ),
    Sabotage(
        "device_synchronizes_the_current_stream_only",
        "guard.cpp",
        "driver::synchronize_device(checked(index));",
        "current_stream(index).synchronize();",
        ("streams.device_synchronize_waits_for_all_streams",),
    ),
    Sabotage(
        "device_synchronizes_the_current_device_only",
        "guard.cpp",
        "driver::synchronize_device(checked(index));",
        "driver::synchronize_device(current_device());",
        ("streams.device_synchronize_waits_for_the_device_asked_for",),
    ),
    Sabotage(
        "events_are_always_complete",
        "guard.cpp",
        "return event == nullptr || as_event(event).query();",
        "return true;",
        ("events.query_tells_whether_the_event_is_complete",),
    ),
    Sabotage(
        "events_keep_their_first_record",
        "guard.cpp",
        "    if (*event == nullptr) *event = new driver::Event;\n",
        "    if (*event != nullptr) return;\n    *event = new driver::Event;\n",
        ("events.event_means_its_newest_record",),
    ),
    Sabotage(
        "new_streams_are_the_default_stream",
        "guard.cpp",
        "return getStreamFromGlobalPool(device, priority < 0);",
        "return getDefaultStream(device);",
        ("streams.new_streams_differ",),
    ),
    Sabotage(
        "streams_belong_to_the_process",
        "device.cpp",
        "thread_local std::array<int, driver::kDevices> streams{}",
        "std::array<int, driver::kDevices> streams{}",
        ("streams.current_stream_belongs_to_the_thread",),
    ),
    Sabotage(
        "copies_between_devices_wait_for_nothing",
        "copy.cpp",
        "const bool two = &source != &target;",
        "const bool two = false;",
        ("copies.copies_between_devices_are_ordered",),
    ),
    Sabotage(
        "pageable_memory_is_read_later",
        "copy.cpp",
        "non_blocking && !pinned ? from.clone() : to_read(from)",
        "to_read(from)",
        ("copies.source_in_pageable_memory_may_be_freed",),
    ),
    Sabotage(
        "reading_an_element_waits_for_nothing",
        "copy.cpp",
        "  current_stream(self.device().index()).synchronize();\n",
        "",
        ("stream_memory.reading_values_waits",),
    ),
    Sabotage(
        "all_work_took_one_millisecond",
        "guard.cpp",
        "    return driver::Event::elapsed(as_event(start), as_event(end));",
        "    return 1.0;",
        ("event_times.elapsed_time_is_the_time_of_the_work",),
    ),
    Sabotage(
        "forked_children_use_the_device",
        "driver/stream.cpp",
        "[] { bad_fork = true; }",
        "[] {}",
        ("processes.child_forked_after_the_first_use_does_not_hang",),
    ),
    # --- memory ---
    Sabotage(
        "record_stream_does_nothing",
        "allocator.cpp",
        "if (&user != it->second.stream) it->second.users.insert(&user);",
        "(void)user;",
        ("stream_memory.record_stream_keeps_the_memory",),
    ),
    Sabotage(
        "autograd_records_no_streams",
        "guard.cpp",
        "    record_stream(data, stream);",
        "",
        ("stream_memory.gradients_between_streams_keep_their_memory",),
    ),
    Sabotage(
        "streams_share_free_memory",
        "allocator.cpp",
        "auto& free = free_[&stream];",
        "auto* owner = &stream;\n    for (auto& [other, blocks] : free_) {\n"
        "      const auto found = blocks.lower_bound(bytes);\n"
        "      const bool fits = found != blocks.end() && found->first <= 2 * bytes;\n"
        "      if (fits && other->device() == stream.device()) owner = other;\n    }\n"
        "    auto& free = free_[owner];",
        ("stream_memory.freed_memory_waits_for_its_stream",),
    ),
    Sabotage(
        "pinned_memory_is_reused_early",
        "copy.cpp",
        "         pinned_allocator().record_event(const_cast<void*>(host.const_data_ptr()),\n"
        "                                         host.storage().data_ptr().get_context(), to_torch(stream));",
        "         stream.id() >= 0;",
        ("copies.pinned_memory_waits_for_its_copies",),
    ),
    Sabotage(
        "lazy_clones_are_written_through",
        "launch.cpp",
        "written ? tensor.mutable_data_ptr() : const_cast<void*>(tensor.const_data_ptr())",
        "const_cast<void*>(tensor.const_data_ptr())",
        ("storages.lazy_clones_separate_at_the_first_write",),
    ),
    Sabotage(
        "resized_storages_forget_their_bytes",
        "resize.cpp",
        "  allocator().copy_data(memory.get(), impl.data(), std::min(bytes, impl.nbytes()));\n",
        "",
        ("hooks.storages_can_be_resized", "storages.resize_keeps_the_elements"),
    ),
    Sabotage(
        "resized_storages_keep_their_memory",
        "resize.cpp",
        "  impl.set_data_ptr_noswap(std::move(memory));\n",
        "",
        ("hooks.storages_can_be_resized",),
    ),
    Sabotage(
        "memory_of_all_devices_is_counted_together",
        "allocator.cpp",
        "DeviceStats& stats_of(const Block& block) { return stats_[block.stream->device()]; }",
        "DeviceStats& stats_of(const Block&) { return stats_[0]; }",
        ("accelerator.memory_of_each_device_is_counted_apart",),
    ),
    Sabotage(
        "out_of_memory_is_any_error",
        "allocator.cpp",
        "TORCH_CHECK_WITH(OutOfMemoryError, block != nullptr,",
        "TORCH_CHECK(block != nullptr,",
        ("out_of_memory.too_large_a_tensor_is_an_error_of_its_own",),
    ),
    Sabotage(
        "peaks_are_never_reset",
        "allocator.cpp",
        "stat.reset_peak();",
        "(void)stat;",
        ("allocator.peak_of_allocated_memory_is_kept",),
    ),
    # --- hooks ---
    Sabotage(
        "hooks_know_another_current_device",
        "hooks.cpp",
        "getCurrentDevice() const override { return current_device(); }",
        "getCurrentDevice() const override { return 0; }",
        ("hooks.hooks_and_guard_have_one_current_device",),
    ),
    Sabotage(
        "storages_are_copied_at_once",
        "allocator.cpp",
        "    current_stream(static_cast<c10::DeviceIndex>(driver::device_of(to))).submit([=] {\n"
        "      std::memcpy(driver::bytes_of(to), driver::bytes_of(from), bytes);\n    });\n",
        "    std::memcpy(driver::bytes_of(to), driver::bytes_of(from), bytes);\n",
        ("hooks.storages_are_resized_in_the_order_of_the_stream",),
    ),
    Sabotage(
        "all_memory_is_pinned",
        "hooks.cpp",
        "return is_pinned(data);",
        "return data != nullptr;",
        ("pinned.other_memory_is_not_pinned",),
    ),
    Sabotage(
        "pinned_memory_is_known_by_its_start",
        "pinned.cpp",
        "return address < it->first + it->second;",
        "return address == it->first;",
        ("pinned.views_of_pinned_memory_are_pinned",),
    ),
    # --- devices ---
    Sabotage(
        "exchange_returns_the_new_device",
        "guard.cpp",
        "    const auto previous = getDevice();\n    setDevice(device);",
        "    setDevice(device);\n    const auto previous = getDevice();",
        ("guard.exchange_returns_the_device_before",),
    ),
    Sabotage(
        "guard_does_not_restore",
        "guard.cpp",
        "    set_device_unchecked(device.index());",
        "    (void)device;",
        ("guard.device_context_restores", "accelerator.operators_leave_the_current_device_alone"),
    ),
    Sabotage(
        "empty_forgets_the_device_index",
        "factories.cpp",
        "  const c10::DeviceGuard guard(device.value_or(c10::Device(kAcme)));\n"
        "  return finished(\n      at::detail::empty_generic(",
        "  return finished(\n      at::detail::empty_generic(",
        ("device.factories_use_the_index_that_they_are_given[empty]", "accelerator.current_device_is_set"),
    ),
    Sabotage(
        "absent_devices_are_the_first",
        "device.cpp",
        "  TORCH_CHECK(index >= 0 && index < driver::kDevices,",
        "  if (index >= driver::kDevices) return 0;\n  TORCH_CHECK(index >= 0 && index < driver::kDevices,",
        ("device.index_without_a_device_is_refused",),
    ),
    Sabotage(
        "current_device_belongs_to_the_process",
        "device.cpp",
        "thread_local c10::DeviceIndex device = 0;",
        "c10::DeviceIndex device = 0;",
        ("accelerator.current_device_belongs_to_the_thread",),
    ),
    Sabotage(
        "fallback_takes_all_devices",
        "fallback.cpp",
        "TORCH_CHECK(tensor.device() == *device,",
        "TORCH_CHECK(true,",
        ("errors.tensors_of_two_devices_are_refused",),
    ),
    # --- tensors ---
    Sabotage(
        "copies_ignore_strides",
        "launch.cpp",
        "tensor.strides(), at::TensorOptions",
        "at::TensorOptions",
        ("copies.layout_goes_and_comes[sliced]", "copies.layout_is_copied_on_the_device[sliced]"),
    ),
    Sabotage(
        "resize_loses_strides",
        "resize.cpp",
        "if (self.sizes() != size) {",
        "if (true) {",
        ("storages.resize_to_the_same_size_keeps_the_strides",),
    ),
    Sabotage(
        "conjugate_copies_recurse",
        "copy.cpp",
        'TORCH_LIBRARY_IMPL(aten, Conjugate, m) {\n  m.impl("_copy_from", torch::CppFunction::makeFallthrough());\n}\n',
        "",
        ("copies.lazy_bits_are_resolved_by_copies[conjugate]",),
    ),
    Sabotage(
        "moved_modules_get_new_parameters",
        "views.cpp",
        "return fits(self) && fits(from);",
        "return fits(self) && fits(from) && self.device() == from.device();",
        ("copying.module_keeps_its_parameters_when_it_moves",),
    ),
    Sabotage(
        "set_moves_nothing",
        "resize.cpp",
        "  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);",
        "  self.resize_(size);\n  return self;",
        ("storages.set_gives_a_tensor_another_storage",),
    ),
    Sabotage(
        "batch_norm_keeps_its_statistics",
        "batch_norm.cpp",
        "  at::Tensor mean = *running_mean;\n  at::Tensor variance = *running_var;\n",
        "  at::Tensor mean = running_mean->clone();\n  at::Tensor variance = running_var->clone();\n",
        ("modules.module_follows_the_cpu[BatchNorm2d]",),
    ),
    Sabotage(
        "autocast_does_nothing",
        "autocast.cpp",
        "  AT_FORALL_LOWER_PRECISION_FP(ACME_LOWER_PRECISION)\n",
        "",
        ("autocast.products_are_computed_in_lower_precision[mm]",),
    ),
    # --- random numbers ---
    Sabotage(
        "generator_restores_no_offset",
        "generator.cpp",
        "    std::memcpy(state_.get(), bytes.data(), sizeof(State));",
        "    std::memcpy(state_.get(), bytes.data(), sizeof(std::uint64_t));",
        ("random.state_repeats_the_numbers",),
    ),
    Sabotage(
        "generator_ignores_its_offset",
        "generator.cpp",
        "state_->seed ^ (state_->offset * 0x9E3779B97F4A7C15)",
        "state_->seed",
        ("random.manual_seed_repeats_the_numbers",),
    ),
    Sabotage(
        "dropout_draws_from_the_cpu",
        "dropout.cpp",
        'TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("native_dropout", TORCH_FN(native_dropout)); }',
        "",
        ("random.device_leaves_the_generator_of_the_cpu_alone",),
    ),
]
