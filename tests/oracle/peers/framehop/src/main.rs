//! Prints the frames that framehop sees in a stopped process:
//!
//!     framehop_frames PID
//!
//! "frame ADDRESS" a frame, then "end complete" where framehop says that there are no more, else "end error".

mod elf;

use elf::Elf;
use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, Module, Unwinder};
use std::fs::{read, read_to_string, File};
use std::os::unix::fs::FileExt;
use std::process::exit;
use std::ptr::null_mut;

const MOST_FRAMES: usize = 1000;

/// The registers of a stopped process, which is traced from here on until detach.
fn attach(pid: libc::pid_t) -> Option<libc::user_regs_struct> {
    let nothing = null_mut::<libc::c_void>();
    // SAFETY: the kernel writes an int and a user_regs_struct, of which all values are valid, where they are.
    unsafe {
        let mut status = 0;
        let mut registers: libc::user_regs_struct = std::mem::zeroed();
        if libc::ptrace(libc::PTRACE_ATTACH, pid, nothing, nothing) != 0
            || libc::waitpid(pid, &mut status, libc::__WALL) != pid
            || libc::ptrace(libc::PTRACE_GETREGS, pid, nothing, &mut registers) != 0
        {
            return None;
        }
        Some(registers)
    }
}

/// Leaves the process stopped.
fn detach(pid: libc::pid_t) {
    let signal = libc::SIGSTOP as usize as *mut libc::c_void;
    // SAFETY: nothing in this process is read or written.
    unsafe { libc::ptrace(libc::PTRACE_DETACH, pid, null_mut::<libc::c_void>(), signal) };
}

/// One line of /proc/PID/maps with code as a module; None where it has none, or its file can't be read.
fn module(line: &str, memory: &File) -> Option<Module<Vec<u8>>> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let (addresses, permissions, offset, path) = (words[0], words[1], words[2], *words.get(5)?);
    if !permissions.contains('x') {
        return None;
    }
    let (start, end) = addresses.split_once('-')?;
    let (start, end) = (u64::from_str_radix(start, 16).ok()?, u64::from_str_radix(end, 16).ok()?);
    let bytes = if path == "[vdso]" {
        let mut bytes = vec![0; (end - start) as usize];
        memory.read_exact_at(&mut bytes, start).ok()?;
        bytes
    } else if path.starts_with('/') {
        read(path).ok()?
    } else {
        return None;
    };
    let elf = Elf { bytes: &bytes };
    let bias = start.wrapping_sub(elf.address(u64::from_str_radix(offset, 16).ok()?)?);
    let sections = ExplicitModuleSectionInfo {
        base_svma: 0, // as framehop has it for ELF
        text_svma: elf.range(".text"),
        text: elf.data(".text"),
        got_svma: elf.range(".got"),
        eh_frame_svma: elf.range(".eh_frame"),
        eh_frame: elf.data(".eh_frame"),
        eh_frame_hdr_svma: elf.range(".eh_frame_hdr"),
        eh_frame_hdr: elf.data(".eh_frame_hdr"),
        debug_frame: elf.data(".debug_frame"),
        ..Default::default()
    };
    Some(Module::new(path.into(), start..end, bias, sections))
}

fn walk(pid: libc::pid_t, registers: &libc::user_regs_struct) -> std::io::Result<()> {
    let memory = File::open(format!("/proc/{pid}/mem"))?;
    let mut unwinder = UnwinderX86_64::new();
    for line in read_to_string(format!("/proc/{pid}/maps"))?.lines() {
        if let Some(module) = module(line, &memory) {
            unwinder.add_module(module);
        }
    }
    let mut read_stack = |address: u64| {
        let mut word = [0; 8];
        memory.read_exact_at(&mut word, address).map_err(|_| ())?;
        Ok(u64::from_le_bytes(word))
    };
    let (pc, sp, fp) = (registers.rip, registers.rsp, registers.rbp);
    let mut cache = CacheX86_64::new();
    let mut frames = unwinder.iter_frames(pc, UnwindRegsX86_64::new(pc, sp, fp), &mut cache, &mut read_stack);
    let mut end = "error";
    for _ in 0..MOST_FRAMES {
        match frames.next() {
            Ok(Some(frame)) => println!("frame {:#x}", frame.address()),
            Ok(None) => {
                end = "complete";
                break;
            }
            Err(_) => break,
        }
    }
    println!("end {end}");
    Ok(())
}

fn main() {
    let pid = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(0);
    let Some(registers) = (if pid > 0 { attach(pid) } else { None }) else { exit(2) };
    let walked = walk(pid, &registers);
    detach(pid);
    if walked.is_err() {
        exit(3);
    }
}
