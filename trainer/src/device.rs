//! Where tensors live and how many threads compute on them.
#![expect(unsafe_code, reason = "loads libtorch_cuda.so with dlopen; see `open_cuda_library`")]

use std::ffi::{CStr, CString};

use tch::Device;

/// Why a device is not to be had.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The name is none that we know.
    #[error("unknown device {name:?}: expected cpu, cuda or cuda:N")]
    UnknownName {
        /// As it was given.
        name: String,
    },
    /// libtorch's CUDA part cannot be loaded.
    #[error(
        "device {name:?} needs {library}, which cannot be opened: {reason}; put the lib folder of a CUDA build of \
         PyTorch 2.11.0 on LD_LIBRARY_PATH, or use device \"cpu\""
    )]
    NoCudaLibrary {
        /// The device that was asked for.
        name: String,
        /// The file that was tried.
        library: String,
        /// What the dynamic loader said.
        reason: String,
    },
    /// The library is there, a device is not.
    #[error("device {name:?} does not exist: libtorch sees {count} CUDA devices")]
    NoSuchCudaDevice {
        /// The device that was asked for.
        name: String,
        /// How many there are.
        count: i64,
    },
}

const CUDA_LIBRARY: &str = "libtorch_cuda.so";

/// The device of a name: `cpu`, `cuda` (the first one) or `cuda:N`.
///
/// For CUDA the CUDA part of libtorch is opened first, so that one binary serves machines with and without it.
pub fn device(name: &str) -> Result<Device, DeviceError> {
    let unknown = || DeviceError::UnknownName { name: name.to_owned() };
    let index = match name {
        "cpu" => return Ok(Device::Cpu),
        "cuda" => 0,
        other => {
            let digits = other.strip_prefix("cuda:").ok_or_else(unknown)?;
            digits.parse::<usize>().map_err(|_| unknown())?
        }
    };
    if let Err(reason) = open_cuda_library() {
        return Err(DeviceError::NoCudaLibrary {
            name: name.to_owned(),
            library: CUDA_LIBRARY.into(),
            reason,
        });
    }
    let count = if tch::Cuda::is_available() { tch::Cuda::device_count() } else { 0 };
    if i64::try_from(index).is_ok_and(|index| index < count) {
        Ok(Device::Cuda(index))
    } else {
        Err(DeviceError::NoSuchCudaDevice { name: name.to_owned(), count })
    }
}

/// Opens libtorch's CUDA part with its symbols visible to the rest of libtorch.
///
/// Its static initialisers register the CUDA kernels with the dispatcher that `libtorch_cpu.so` holds. Opening
/// it a second time is harmless: the loader counts references.
fn open_cuda_library() -> Result<(), String> {
    let name = CString::new(CUDA_LIBRARY).map_err(|error| error.to_string())?;
    // SAFETY: the name is a valid C string. The library's initialisers are libtorch's own and are made to be run
    // by dlopen, which is how Python loads them. The handle is never closed, so nothing it registered dangles.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    if !handle.is_null() {
        return Ok(());
    }
    // SAFETY: dlerror returns null or a C string that stays valid until this thread's next dl call; it is copied
    // before that.
    let message = unsafe {
        let text = libc::dlerror();
        if text.is_null() { None } else { Some(CStr::from_ptr(text).to_string_lossy().into_owned()) }
    };
    Err(message.unwrap_or_else(|| "the loader gave no reason".into()))
}

/// Lets libtorch compute with so many threads on behalf of the calling thread; 0 is taken as 1.
///
/// OpenMP keeps the number per calling thread, so the thread that owns the tensors must be the one that calls.
pub fn set_threads(threads: usize) {
    tch::set_num_threads(i32::try_from(threads.max(1)).unwrap_or(i32::MAX));
}
