// Package tpmkey seals the key of the journal with the board's TPM 2.0, and
// unseals it: what is on the disk is then of no use without the board that it
// was taken from. It has no counterpart in the kubelet.
//
// # What is sealed
//
// The key is the data of a keyed-hash object that the TPM encrypts under its
// storage root key, which it makes anew each time from the seed of the owner
// hierarchy and the TCG's template for ECC P-256. A key takes nothing of the
// TPM's own storage, and all that it holds meanwhile is flushed. The object
// cannot be moved to another TPM (fixedTPM, fixedParent). Its password is
// empty, so what it protects from is a disk without its board; with PCRs it is
// also bound to what the board has booted, and so to who may ask.
//
// The key crosses the bus to the TPM encrypted: by sessions whose secret is
// salted with the storage root key. The file has that key's name, and it is
// checked before anything is unsealed, so that nobody on the bus can stand in
// for the TPM. When a key is sealed, the TPM is taken for what it says it is.
//
// # The counter
//
// Counter is the anchor of the journal: an NV counter, and a second index whose
// existence marks the counter as bound. Both have an empty password, and the
// TPM's owner can delete them. The TPM begins a counter that is made again above
// each value that any counter had, so a deletion sets nothing back. The
// counter's authPolicy, which authorizes nothing, holds its random id. It is
// incremented once for each start after which something was kept, and so wears
// less than what TPMs are specified for.
//
// # The file
//
// Lines of text, each a word and its values, bytes in lower-case hexadecimal:
//
//	tinylet-tpm-key 1                 the format's version
//	parent 000b…                      the name of the storage root key
//	public 0008000b…                  the object's TPMT_PUBLIC
//	private …                         its TPM2B_PRIVATE, without the length
//	pcr 7 …                           a PCR of the SHA-256 bank; ascending, or none
//	sha256 …                          of all lines above
//
// It has no secret. There is one way only to write what it says, so what was
// parsed is encoded to the same bytes. It is a format of its own, not the
// "TSS2 PRIVATE KEY" of OpenSSL and the kernel, because that one has neither a
// checksum nor the parent's name nor the values of PCRs: with them an error
// can tell a torn file from another TPM, and which PCR has changed.
package tpmkey
