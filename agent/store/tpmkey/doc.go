// Package tpmkey seals the journal's key with the board's TPM 2.0, and unseals
// it. The journal on a disk is then useless without the board that the disk was
// taken from. The kubelet has no counterpart.
//
// # What is sealed
//
// The key is the data of a keyed-hash object that the TPM encrypts under its
// storage root key. The TPM derives that key each time from the seed of the owner
// hierarchy and the TCG's template for ECC P-256. A sealed key occupies no storage
// of the TPM, and its transient objects are flushed. The object cannot be moved
// to another TPM (fixedTPM, fixedParent). Its password is empty, so it protects
// against the theft of a disk without its board. With PCRs it is also bound to
// the software that the board has booted, and so to the programs that can unseal
// it.
//
// The key crosses the bus to the TPM encrypted, in sessions whose secret is
// salted with the storage root key. The file has that key's name, which is
// checked before anything is unsealed, so that no device on the bus can
// impersonate the TPM. When a key is sealed, the TPM is not authenticated.
//
// # The counter
//
// Counter is the anchor of the journal: an NV counter, and a second index whose
// existence marks the counter as bound. Both have an empty password, and the
// TPM's owner can delete them. The TPM starts a new counter above each value that
// any counter ever had, so deletion does not set the counter back. The counter's
// authPolicy, which authorizes nothing, holds its random id. The counter is
// incremented once for each start after which something was stored, and so wears
// less than TPMs are specified for.
//
// # The file
//
// The file consists of lines of text, each a word and its values, bytes in
// lower-case hexadecimal:
//
//	tinylet-tpm-key 1                 the format's version
//	parent 000b…                      the name of the storage root key
//	public 0008000b…                  the object's TPMT_PUBLIC
//	private …                         its TPM2B_PRIVATE, without the length
//	pcr 7 …                           a PCR of the SHA-256 bank; ascending, or none
//	sha256 …                          of all lines above
//
// It contains no secret. The encoding is canonical: what was parsed is encoded to
// the same bytes. The format is not the "TSS2 PRIVATE KEY" of OpenSSL and the
// kernel, because that one has neither a checksum nor the parent's name nor the
// values of PCRs. With them an error can distinguish a torn file from another
// TPM, and can name the PCR that has changed.
package tpmkey
