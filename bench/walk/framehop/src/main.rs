//! Walks the samples of a file that bench/walk/samples.py writes with framehop:
//!
//!     framehop_walk FILE
//!
//! It is told what to do, and answers, as walkers/samples.h says.

use framehop::x86_64::{CacheX86_64, UnwindRegsX86_64, UnwinderX86_64};
use framehop::{ExplicitModuleSectionInfo, MustNotAllocateDuringUnwind, Module, Unwinder};
use std::alloc::Layout;
use std::io::{BufRead, Read, Write};
use std::time::Instant;

type Cache = CacheX86_64<MustNotAllocateDuringUnwind>;
type Walker = UnwinderX86_64<&'static [u8], MustNotAllocateDuringUnwind>;

const EH_FRAME: u64 = 1;
const TEXT: u64 = 3;
const EH_FRAME_HDR: u64 = 4;

const HUGE_PAGE: usize = 2 << 20;
const MADV_HUGEPAGE: i32 = 14;

extern "C" {
    fn madvise(address: *mut u8, size: usize, advice: i32) -> i32;
}

/// A file in memory of its own, in huge pages if they can be had, as all walkers have it.
fn read_file(path: &str) -> &'static [u8] {
    let mut file = std::fs::File::open(path).expect("the samples can be read");
    let size = file.metadata().unwrap().len() as usize;
    let room = Layout::from_size_align(size.next_multiple_of(HUGE_PAGE), HUGE_PAGE).unwrap();
    let bytes = unsafe {
        let bytes = std::alloc::alloc(room);
        madvise(bytes, room.size(), MADV_HUGEPAGE);
        std::slice::from_raw_parts_mut(bytes, size)
    };
    file.read_exact(bytes).unwrap();
    bytes
}

struct Reader {
    bytes: &'static [u8],
}

impl Reader {
    fn word(&mut self) -> u64 {
        let (word, rest) = self.bytes.split_at(8);
        self.bytes = rest;
        u64::from_le_bytes(word.try_into().unwrap())
    }

    fn block(&mut self) -> &'static [u8] {
        let size = self.word() as usize;
        let block = &self.bytes[..size];
        self.bytes = &self.bytes[size.next_multiple_of(8)..];
        block
    }

    fn words(&mut self, count: u64) -> Vec<u64> {
        (0..count).map(|_| self.word()).collect()
    }
}

fn read_module(reader: &mut Reader) -> Module<&'static [u8]> {
    let header = reader.words(8);
    let (start, end, image_base, image_address) = (header[0], header[1], header[2], header[4]);
    reader.block(); // its path
    let mut sections = ExplicitModuleSectionInfo { base_svma: image_address, ..Default::default() };
    for _ in 0..reader.word() {
        let (kind, address, _is_open_ended) = (reader.word(), reader.word(), reader.word());
        let data = reader.block();
        let range = address..address + data.len() as u64;
        match kind {
            EH_FRAME => (sections.eh_frame_svma, sections.eh_frame) = (Some(range), Some(data)),
            TEXT => (sections.text_svma, sections.text) = (Some(range), Some(data)),
            EH_FRAME_HDR => (sections.eh_frame_hdr_svma, sections.eh_frame_hdr) = (Some(range), Some(data)),
            _ => {}
        }
    }
    Module::new("module".into(), start..end, image_base, sections)
}

struct Samples {
    registers: Vec<u64>,
    offsets: Vec<u64>,
    stacks: &'static [u8],
}

/// How many frames there are, and how many stacks end without an error.
fn walk_all(samples: &Samples, unwinder: &Walker, cache: &mut Cache) -> (u64, u64) {
    let (mut frames, mut complete) = (0, 0);
    for (i, sample) in samples.registers.chunks_exact(4).enumerate() {
        let (pc, sp, fp) = (sample[0], sample[1], sample[2]);
        let stack = &samples.stacks[samples.offsets[i] as usize..samples.offsets[i + 1] as usize];
        let mut read = |address: u64| {
            let offset = address.checked_sub(sp).ok_or(())? as usize;
            let bytes = stack.get(offset..offset.checked_add(8).ok_or(())?).ok_or(())?;
            Ok(u64::from_le_bytes(bytes.try_into().unwrap()))
        };
        let mut iterator = unwinder.iter_frames(pc, UnwindRegsX86_64::new(pc, sp, fp), cache, &mut read);
        loop {
            match iterator.next() {
                Ok(Some(_)) => frames += 1,
                Ok(None) => {
                    complete += 1;
                    break;
                }
                Err(_) => break,
            }
        }
    }
    (frames, complete)
}

fn anonymous_kilobytes() -> i64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).unwrap();
    line.split_ascii_whitespace().nth(1).unwrap().parse().unwrap()
}

fn main() {
    let path = std::env::args().nth(1).expect("framehop_walk FILE");
    let mut reader = Reader { bytes: read_file(&path) };
    let (module_count, count) = (reader.word(), reader.word());
    let modules: Vec<_> = (0..module_count).map(|_| read_module(&mut reader)).collect();
    let (registers, offsets) = (reader.words(4 * count), reader.words(count + 1));
    let samples = Samples { registers, offsets, stacks: reader.bytes };
    let before = anonymous_kilobytes();
    let mut unwinder = Walker::new();
    for module in modules {
        unwinder.add_module(module);
    }
    let mut cache = Cache::new_in();
    for line in std::io::stdin().lock().lines() {
        if line.unwrap() == "cold" {
            cache = Cache::new_in();
        }
        let start = Instant::now();
        let (frames, complete) = walk_all(&samples, &unwinder, &mut cache);
        let nanoseconds = start.elapsed().as_nanos();
        println!("{nanoseconds} {frames} {complete} 0 {}", anonymous_kilobytes() - before);
        std::io::stdout().flush().unwrap();
    }
}
