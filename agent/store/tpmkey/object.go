package tpmkey

import (
	"bytes"
	"crypto/sha256"
	"errors"

	"github.com/google/go-tpm/tpm2"
)

// keyTemplate returns the template of the object that holds a key. Unique is empty.
func keyTemplate(pcrs []pcr) tpm2.TPMTPublic {
	return tpm2.TPMTPublic{
		Type:    tpm2.TPMAlgKeyedHash,
		NameAlg: tpm2.TPMAlgSHA256,
		ObjectAttributes: tpm2.TPMAObject{
			FixedTPM: true, FixedParent: true,
			// With PCRs, only their policy authorizes the use of the key.
			UserWithAuth: len(pcrs) == 0,
			// There is no password to guess.
			NoDA: true,
		},
		AuthPolicy: tpm2.TPM2BDigest{Buffer: pcrPolicy(pcrs)},
		Parameters: tpm2.NewTPMUPublicParms(tpm2.TPMAlgKeyedHash, &tpm2.TPMSKeyedHashParms{}), // no scheme: only data
	}
}

// pcrPolicy returns the digest of TPM2_PolicyPCR for these values, nil without PCRs.
// It is computed here, so that it always matches the values in the file.
func pcrPolicy(pcrs []pcr) []byte {
	if len(pcrs) == 0 {
		return nil
	}
	values := sha256.New()
	for _, p := range pcrs {
		values.Write(p.value[:])
	}
	code := tpm2.TPMCCPolicyPCR
	digest := sha256.New()
	digest.Write(make([]byte, sha256.Size))
	digest.Write([]byte{byte(code >> 24), byte(code >> 16), byte(code >> 8), byte(code)})
	digest.Write(tpm2.Marshal(pcrSelection(pcrs)))
	digest.Write(values.Sum(nil))
	return digest.Sum(nil)
}

// pcrSelection returns a selection of PCRs of the SHA-256 bank.
func pcrSelection(pcrs []pcr) tpm2.TPMLPCRSelection {
	indexes := make([]uint, 0, len(pcrs))
	for _, p := range pcrs {
		indexes = append(indexes, uint(p.index))
	}
	return tpm2.TPMLPCRSelection{PCRSelections: []tpm2.TPMSPCRSelection{{
		Hash: tpm2.TPMAlgSHA256, PCRSelect: tpm2.PCClientCompatible.PCRs(indexes...),
	}}}
}

// checkPublic compares the public part with the template: the object must not be
// movable to another TPM, and must have the policy of the PCRs in the file.
func (s *Sealed) checkPublic() error {
	want := keyTemplate(s.pcrs)
	if len(s.public) >= sha256.Size {
		want.Unique = tpm2.NewTPMUPublicID(tpm2.TPMAlgKeyedHash, &tpm2.TPM2BDigest{Buffer: s.public[len(s.public)-sha256.Size:]})
	}
	if len(s.public) < sha256.Size || !bytes.Equal(tpm2.Marshal(want), s.public) {
		return errors.New("the public part is not tinylet's")
	}
	return nil
}
