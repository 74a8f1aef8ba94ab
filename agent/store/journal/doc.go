// Package journal keeps a small map of keys to byte values on a disk that may
// lose power at any moment. It owns one file, and with it three promises: a
// batch of changes that Write acknowledged is there after a power cut; of a
// batch that it did not, all or nothing is; and damage costs the batches that
// it hits and no other. It knows nothing of what the values mean.
//
// Values are read from the disk when asked for. Memory holds for each key its
// name and some 80 bytes. There are no goroutines and no timers: what is to be
// tidied up is tidied up by a Write.
//
// # File
//
// The folder holds the file "journal" and, while it is rewritten, the file
// "journal.new", which counts only once it is renamed. The file is a sequence
// of batches with nothing between them. Numbers are little endian. A batch is
// a header of 60 bytes and its payload:
//
//	offset  bytes
//	 0      8  magic: d3 "tnyjrn" 1a
//	 8      4  version of the format: 1
//	12      4  number of records in the payload, at least 1
//	16      8  sequence: larger than that of every batch before, below 1<<63
//	24      8  wall time in nanoseconds since 1970 UTC; 0 is none
//	32      8  id of the file, random, the same in all its batches
//	40      8  id of the key, 0 in a plain file, the same in all its batches
//	48      4  length of the payload in bytes
//	52      4  CRC-32C of the payload, as it is stored
//	56      4  CRC-32C of the header's first 56 bytes
//
// The id of a key is the first 8 bytes of HMAC-SHA256(key, "tinylet journal
// key id"), or 1 where these are all zero. The payload is records:
//
//	2  length of the stored head
//	n  stored head
//	m  stored value, only of a put
//
// In a plain file both are stored as they are. In a sealed file each is a
// random nonce of 12 bytes, then its AES-256-GCM ciphertext, then the tag of
// 16 bytes. A head's additional data are the first 52 bytes of the header and
// the record's number in the batch (4 bytes, from 0); a value's are the byte
// 'v', the file's id, the sequence and the record's name. A head is:
//
//	1  kind: 1 put, 2 delete, 3 opening
//	4  length of the value
//	16 first bytes of the value's SHA-256
//	n  name, 1 to MaxKey bytes; "\x00generation/" begins those of the journal
//
// Only a put has a value and so a length and a hash; an opening has no name.
// A file begins with a batch that has one opening and nothing else. It carries
// the ids and the time of the newest record before the file was written. So a
// sealed file shows how much was written when, and no name and no value.
//
// A later version keeps the magic, the header's length, the places of version
// and header CRC, so that this one can refuse it without doing harm.
//
// # Replay
//
// The file's version and ids are those of the header at its beginning; if that
// one is damaged, of the batch after the opening one, which stands at a known
// place; else of the first that is found. What bears others is no header: a
// value that looks like a batch is not taken for one, as nobody who writes
// values knows the file's id.
//
// A batch counts if its header and payload are whole. One whose payload is
// not is skipped by its length. Where no header stands, the next one is looked
// for. What is then left at the end without a whole batch is a torn tail, as a
// power cut leaves it, and is cut off. Batches after a lost one apply as ever.
//
// # Writing
//
// A Write is one pwrite and one fdatasync. A batch over 256 KiB is written in
// pieces, its header last. When the file holds more dead bytes than live ones,
// and more than 64 KiB of them, the live records are written to a new file,
// one batch each; it is synced, renamed over the old one, and the folder is
// synced.
//
// After an fsync that failed, nobody knows what the disk has: the kernel may
// have dropped the pages and call the next fsync a success (fsync(2), "EIO").
// So the file is then not written to again. The live records go to a new one
// before anything is appended.
//
// # Freshness
//
// With a key, a plain file is refused with ErrPlain unless it holds nothing.
// With an Anchor, an older copy of a sealed file is refused with ErrStale. The
// refused file is not changed. Config.Migrate takes it once.
//
// An anchor holds a random id and a generation outside of the disk. A sealed
// file that has an anchor carries both in the name of a put without a value,
// after the opening batch and once more at the end of the rewrite:
//
//	"\x00generation/" id in hex "/" generation "/" id of the file in hex, or 0
//
// A file is accepted if its id is the anchor's and its generation is the
// anchor's or a later one, which nobody without the key can write. A file
// without a generation, as earlier releases wrote it, is accepted until the
// anchor is bound for the first time.
//
// An open of a file that was written to rewrites it in the next generation and
// then raises the anchor. All batches of a file are bound to its random id, so
// a batch of an earlier generation does not fit into a later one. A file that
// nothing was appended to since that rewrite (the record at its end has the
// file's own id) has had one content only in its generation: an open leaves it
// and the anchor as they are. So there is at most one rewrite and one raise for
// each open, and none for an open that follows no write.
//
// The updates are ordered: the anchor is made, the file is written, the anchor
// is raised. A power cut between two of them leaves a file that is accepted. An
// anchor that cannot be raised leaves older copies acceptable for so long; it
// is raised after the next rewrite.
//
// Earlier releases read and append to a file with a generation: it is a key
// that they do not know, and keep.
//
// # What is not prevented
//
// Whoever can write to the disk can delete the file. They can drop batches of
// the current generation, in particular cut off its end: damage and a torn tail
// look the same. A copy that was made since the last rewrite at an open is
// accepted until the next open of a file that was written to. Whoever can also
// delete the anchor can put a copy of a release that had no anchors in place of
// the file. Without an anchor every older copy is accepted.
package journal
