// Package journal keeps a small map of keys to byte values on a disk that may lose power
// at any moment. It uses one file and gives three guarantees. A batch of changes for which
// Write returned nil is there after a power cut. Of any other batch, all or nothing is
// there. Damage destroys the batches that it hits and no others. The package does not
// interpret the values.
//
// Values are read from the disk on each Read. Memory holds for each key its name
// and some 80 bytes. There are no goroutines and no timers: Write compacts the
// file.
//
// # File
//
// The directory holds the file "journal" and, while it is rewritten, the file
// "journal.new", which is valid only once it is renamed. The file is a sequence
// of batches with nothing between them. Numbers are little endian. A batch is
// a header of 60 bytes and its payload:
//
//	offset  bytes
//	 0      8  magic: d3 "tnyjrn" 1a
//	 8      4  version of the format: 1
//	12      4  number of records in the payload, at least 1
//	16      8  sequence: larger than that of every batch before, below 1<<63
//	24      8  wall time in nanoseconds since 1970 UTC; 0 means none
//	32      8  id of the file, random, the same in all its batches
//	40      8  id of the key, 0 in a plain file, the same in all its batches
//	48      4  length of the payload in bytes
//	52      4  CRC-32C of the payload, as it is stored
//	56      4  CRC-32C of the header's first 56 bytes
//
// The id of a key is the first 8 bytes of HMAC-SHA256(key, "tinylet journal
// key id"), or 1 if these are all zero. The payload is a sequence of records:
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
//	n  name, 1 to MaxKey bytes; the prefix "\x00generation/" is reserved
//
// Only a put has a value, and so a length and a hash. An opening has no name.
// A file begins with a batch that has one opening and nothing else. It carries
// the ids and the time of the newest record before the file was written. A
// sealed file therefore shows how much was written when, but no name and no
// value.
//
// A later version must keep the magic, the header's length, and the offsets of
// the version and the header CRC, so that this version can reject it and leave it
// unchanged.
//
// # Replay
//
// The version and the ids of the file come from the header at its beginning. If
// that header is damaged, they come from the batch after the opening one, whose
// offset is known, or else from the first header that is found. Bytes with another
// version or other ids are not a header. A value that has the form of a batch is
// therefore not read as one, because a writer of values does not know the file's
// id.
//
// A batch is valid if its header and its payload are intact. If only the payload
// is damaged, the batch is skipped by its length. If there is no header, replay
// searches for the next one. The bytes at the end after the last valid batch are
// a torn tail, as after a power cut, and are cut off. Batches after a lost one
// are applied.
//
// # Writing
//
// A Write is one pwrite and one fdatasync. A batch over 256 KiB is written in
// pieces, its header last. If the file holds more dead bytes than live ones, and
// more than 64 KiB of dead ones, the live records are written to a new file, one
// batch each. The new file is synced and renamed over the old one, and the
// directory is synced.
//
// After a failed fsync the content of the disk is unknown: the kernel may have
// dropped the pages, and the next fsync may succeed without them (fsync(2),
// "EIO"). The file is therefore not written to again. The live records are written
// to a new file before anything is appended.
//
// # Freshness
//
// With a key, a plain file is rejected with ErrPlain unless it is empty. With an
// Anchor, an older copy of a sealed file is rejected with ErrStale. The rejected
// file is not changed. Config.Migrate accepts it once.
//
// An anchor holds a random id and a generation outside of the disk. A sealed
// file that has an anchor carries both in the name of a put without a value,
// after the opening batch and again at the end of the rewrite:
//
//	"\x00generation/" id in hex "/" generation "/" id of the file in hex, or 0
//
// A file is accepted if its id is the anchor's and its generation is the
// anchor's or a later one, which cannot be written without the key. A file
// without a generation, as earlier releases wrote it, is accepted until the
// anchor is bound for the first time.
//
// Open rewrites a file that was written to in the next generation and then raises
// the anchor. All batches of a file are bound to its random id, so a batch of an
// earlier generation is not valid in a later one. A file to which nothing was
// appended since that rewrite (the record at its end has the file's own id) has
// had only one content in its generation: Open leaves it and the anchor
// unchanged. So there is at most one rewrite and one raise for each Open, and
// none for an Open that follows no write.
//
// The updates are ordered: the anchor is created, the file is written, the anchor
// is raised. A power cut between two of them leaves a file that is accepted. While
// an anchor cannot be raised, older copies are accepted. The next rewrite raises
// it again.
//
// Earlier releases read and append to a file with a generation: they treat it as
// an unknown key, and keep it.
//
// # What is not prevented
//
// An attacker who can write to the disk can delete the file, and can drop batches
// of the current generation, in particular cut off its end: damage and a torn
// tail cannot be distinguished from that. A copy that was made since the last
// rewrite by Open is accepted until the next Open of a file that was written to.
// An attacker who can also delete the anchor can replace the file by a copy that
// a release without anchors wrote. Without an anchor every older copy is accepted.
package journal
