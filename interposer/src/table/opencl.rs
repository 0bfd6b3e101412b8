//! OpenCL: `libOpenCL.so.1`, the loader that programs are linked with. What its calls take of memory, the layers below tell (HSA, the
//! kernel's drivers): here it only matters what a call answers inside which memory was refused, or that itself says that there was none.
//!
//! Signatures: `cl.h` of Khronos's OpenCL-Headers. A function that makes something returns a handle and writes its status to where its
//! caller says (nowhere, if that is null); all others return the status; `clSVMAlloc` returns memory or null, without a status.
//!
//! A driver may take a buffer's memory at `clCreateBuffer` or at the first call that works on it. So the latter are here, too.

use gpuoom_trace::meaning::{Codes, Family, Meaning, says};
use gpuoom_trace::record::Layer;

use super::Library;
use super::macros::rows;

macro_rules! functions {
    ($make:ident) => {
        $make! {
            base: crate::table::OPENCL, library: Library::OpenCl, layer: Layer::Runtime, meaning: Meaning::new(Codes::OpenCl, Family::Pointers).says(says::SETS_UP);
            recorded {}
            watched {}
            answering {
                clCreateContext(properties: Pointer, count: u32, devices: Pointer, notify: Pointer, data: Pointer, error: Error) => Module, makes(error);
                clCreateContextFromType(properties: Pointer, sort: u64, notify: Pointer, data: Pointer, error: Error) => Module, makes(error);
                clCreateCommandQueue(context: u64, device: u64, properties: u64, error: Error) => Module, makes(error);
                clCreateCommandQueueWithProperties(context: u64, device: u64, properties: Pointer, error: Error) => Module, makes(error);
                clCreateBuffer(context: u64, flags: u64, size: usize, host: Pointer, error: Error) => Module, makes(error);
                clCreateBufferWithProperties(context: u64, properties: Pointer, flags: u64, size: usize, host: Pointer, error: Error)
                    => Module, makes(error);
                clCreateSubBuffer(buffer: u64, flags: u64, sort: u32, region: Pointer, error: Error) => Module, makes(error);
                clCreateImage(context: u64, flags: u64, format: Pointer, shape: Pointer, host: Pointer, error: Error) => Module, makes(error);
                clCreateImageWithProperties(
                    context: u64, properties: Pointer, flags: u64, format: Pointer, shape: Pointer, host: Pointer, error: Error
                ) => Module, makes(error);
                clCreateImage2D(
                    context: u64, flags: u64, format: Pointer, width: usize, height: usize, pitch: usize, host: Pointer, error: Error
                ) => Module, makes(error);
                clCreateImage3D(
                    context: u64, flags: u64, format: Pointer, width: usize, height: usize, depth: usize, row_pitch: usize,
                    slice_pitch: usize, host: Pointer, error: Error
                ) => Module, makes(error);
                clCreatePipe(context: u64, flags: u64, packet: u32, packets: u32, properties: Pointer, error: Error) => Module, makes(error);
                clSVMAlloc(context: u64, flags: u64, size: usize, alignment: u32) => Module, gives();
                clBuildProgram(program: u64, count: u32, devices: Pointer, options: Pointer, notify: Pointer, data: Pointer)
                    => Device, answers();
                clFlush(queue: u64) => Sync, answers();
                clFinish(queue: u64) => Sync, answers();
                clEnqueueMapBuffer(
                    queue: u64, buffer: u64, blocking: u32, flags: u64, offset: usize, size: usize, count: u32, awaited: Pointer,
                    event: Pointer, error: Error
                ) => Module, maps(buffer, error);
                clEnqueueMapImage(
                    queue: u64, image: u64, blocking: u32, flags: u64, origin: Pointer, region: Pointer, row_pitch: Pointer,
                    slice_pitch: Pointer, count: u32, awaited: Pointer, event: Pointer, error: Error
                ) => Module, maps(image, error);
                clEnqueueUnmapMemObject(queue: u64, memory: u64, mapped: Pointer, count: u32, awaited: Pointer, event: Pointer)
                    => GpuWork, works_on(memory, memory);
                clEnqueueReadBuffer(
                    queue: u64, buffer: u64, blocking: u32, offset: usize, size: usize, to: Pointer, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works_on(buffer, buffer);
                clEnqueueWriteBuffer(
                    queue: u64, buffer: u64, blocking: u32, offset: usize, size: usize, from: Pointer, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works_on(buffer, buffer);
                clEnqueueReadBufferRect(
                    queue: u64, buffer: u64, blocking: u32, origin: Pointer, host_origin: Pointer, region: Pointer, row_pitch: usize,
                    slice_pitch: usize, host_row_pitch: usize, host_slice_pitch: usize, to: Pointer, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works_on(buffer, buffer);
                clEnqueueWriteBufferRect(
                    queue: u64, buffer: u64, blocking: u32, origin: Pointer, host_origin: Pointer, region: Pointer, row_pitch: usize,
                    slice_pitch: usize, host_row_pitch: usize, host_slice_pitch: usize, from: Pointer, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works_on(buffer, buffer);
                clEnqueueFillBuffer(
                    queue: u64, buffer: u64, pattern: Pointer, pattern_size: usize, offset: usize, size: usize, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works_on(buffer, buffer);
                clEnqueueCopyBuffer(
                    queue: u64, from: u64, to: u64, from_offset: usize, to_offset: usize, size: usize, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works_on(from, to);
                clEnqueueCopyBufferRect(
                    queue: u64, from: u64, to: u64, from_origin: Pointer, to_origin: Pointer, region: Pointer, from_row_pitch: usize,
                    from_slice_pitch: usize, to_row_pitch: usize, to_slice_pitch: usize, count: u32, awaited: Pointer, event: Pointer
                ) => GpuWork, works_on(from, to);
                clEnqueueReadImage(
                    queue: u64, image: u64, blocking: u32, origin: Pointer, region: Pointer, row_pitch: usize, slice_pitch: usize,
                    to: Pointer, count: u32, awaited: Pointer, event: Pointer
                ) => GpuWork, works_on(image, image);
                clEnqueueWriteImage(
                    queue: u64, image: u64, blocking: u32, origin: Pointer, region: Pointer, row_pitch: usize, slice_pitch: usize,
                    from: Pointer, count: u32, awaited: Pointer, event: Pointer
                ) => GpuWork, works_on(image, image);
                clEnqueueFillImage(
                    queue: u64, image: u64, colour: Pointer, origin: Pointer, region: Pointer, count: u32, awaited: Pointer, event: Pointer
                ) => GpuWork, works_on(image, image);
                clEnqueueCopyImage(
                    queue: u64, from: u64, to: u64, from_origin: Pointer, to_origin: Pointer, region: Pointer, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works_on(from, to);
                clEnqueueCopyImageToBuffer(
                    queue: u64, from: u64, to: u64, origin: Pointer, region: Pointer, offset: usize, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works_on(from, to);
                clEnqueueCopyBufferToImage(
                    queue: u64, from: u64, to: u64, offset: usize, origin: Pointer, region: Pointer, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works_on(from, to);
                clEnqueueMigrateMemObjects(
                    queue: u64, memories: u32, memory: Pointer, flags: u64, count: u32, awaited: Pointer, event: Pointer
                ) => GpuWork, works();
                clEnqueueNDRangeKernel(
                    queue: u64, kernel: u64, dimensions: u32, offset: Pointer, global: Pointer, local: Pointer, count: u32, awaited: Pointer,
                    event: Pointer
                ) => GpuWork, works();
                clEnqueueTask(queue: u64, kernel: u64, count: u32, awaited: Pointer, event: Pointer) => GpuWork, works();
                clEnqueueSVMMemcpy(
                    queue: u64, blocking: u32, to: u64, from: u64, size: usize, count: u32, awaited: Pointer, event: Pointer
                ) => GpuWork, works_on(to, from);
                clEnqueueSVMMemFill(
                    queue: u64, memory: u64, pattern: Pointer, pattern_size: usize, size: usize, count: u32, awaited: Pointer, event: Pointer
                ) => GpuWork, works_on(memory, memory);
                clEnqueueSVMMap(
                    queue: u64, blocking: u32, flags: u64, memory: u64, size: usize, count: u32, awaited: Pointer, event: Pointer
                ) => GpuWork, works_on(memory, memory);
                clEnqueueSVMUnmap(queue: u64, memory: u64, count: u32, awaited: Pointer, event: Pointer) => GpuWork, works_on(memory, memory);
                clEnqueueSVMMigrateMem(
                    queue: u64, memories: u32, memory: Pointer, sizes: Pointer, flags: u64, count: u32, awaited: Pointer, event: Pointer
                ) => GpuWork, works();
            }
        }
    };
}

pub(crate) use functions;

functions!(rows);
