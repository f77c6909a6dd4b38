// The same as main.c in Rust: what it uses of digits.h by hand; bindgen makes all of it.
use std::ffi::{c_char, c_int, c_void, CStr};
use std::process::ExitCode;

const PIXELS: usize = 8 * 8;
const CLASSES: usize = 10;

#[link(name = "digits")]
unsafe extern "C" {
    fn digits_create(options: *const c_void, context: *mut *mut c_void) -> c_int;
    fn digits_destroy(context: *mut c_void);
    fn digits_set_input_shape(context: *mut c_void, input: usize, dims: *const i64, rank: usize) -> c_int;
    fn digits_bind_input(context: *mut c_void, input: usize, memory: *const c_void, bytes: usize) -> c_int;
    fn digits_bind_output(context: *mut c_void, output: usize, memory: *mut c_void, bytes: usize) -> c_int;
    fn digits_run(context: *mut c_void) -> c_int;
    fn digits_last_error(context: *const c_void) -> *const c_char;
}

/// A context of the library, which one thread uses at a time.
struct Recogniser(*mut c_void);

impl Recogniser {
    fn new() -> Result<Self, String> {
        let mut made = Recogniser(std::ptr::null_mut());
        let status = unsafe { digits_create(std::ptr::null(), &mut made.0) };
        made.checked(status)?;
        Ok(made)
    }

    fn checked(&self, status: c_int) -> Result<(), String> {
        if status == 0 {
            return Ok(());
        }
        let text = unsafe { CStr::from_ptr(digits_last_error(self.0)) };
        Err(text.to_string_lossy().into_owned())
    }

    /// Of each image, 64 floats, one digit.
    fn recognise(&mut self, images: &[f32]) -> Result<Vec<usize>, String> {
        let count = images.len() / PIXELS;
        let shape = [count as i64, 1, 8, 8];
        let mut logits = vec![0f32; count * CLASSES];
        unsafe {
            self.checked(digits_set_input_shape(self.0, 0, shape.as_ptr(), 4))?;
            self.checked(digits_bind_input(self.0, 0, images.as_ptr().cast(), 4 * count * PIXELS))?;
            self.checked(digits_bind_output(self.0, 0, logits.as_mut_ptr().cast(), 4 * logits.len()))?;
            self.checked(digits_run(self.0))?;
        }
        let likely = |own: &[f32]| (1..CLASSES).fold(0, |best, i| if own[i] > own[best] { i } else { best });
        Ok(logits.chunks(CLASSES).map(likely).collect())
    }
}

impl Drop for Recogniser {
    fn drop(&mut self) {
        unsafe { digits_destroy(self.0) }
    }
}

fn digits_of(path: &str) -> Result<Vec<usize>, String> {
    let bytes = std::fs::read(path).map_err(|e| format!("{path}: {e}"))?;
    let images: Vec<f32> =
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
    Recogniser::new()?.recognise(&images)
}

fn main() -> ExitCode {
    let Some(path) = std::env::args().nth(1) else {
        eprintln!("usage: recognise IMAGES, a file of floats");
        return ExitCode::from(2);
    };
    match digits_of(&path) {
        Ok(found) => found.iter().for_each(|digit| println!("{digit}")),
        Err(text) => {
            eprintln!("{text}");
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
