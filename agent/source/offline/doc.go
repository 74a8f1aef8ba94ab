// Package offline keeps on the disk what the board needs to run its API pods
// again after a start without network, and answers it: the pods that were
// admitted here, how those ended that did, and the objects and tokens that
// the others use. It has no counterpart in the kubelet, which forgets API
// pods at its end and waits for the server; its operation RESTORE
// (pkg/kubelet/types/pod_update.go) is what the pods are replayed with.
//
// # On the disk
//
// Everything is in one agent/store/journal, whose promises about power cuts and
// damage hold. Its folder has mode 0700 and its file 0600. A value is a byte,
// the version of the format (1), and a message in protobuf. The keys are:
//
//	pod/<uid>                         v1.Pod
//	end/<uid>                         v1.PodStatus, of a pod that has ended
//	object/<kind>/<namespace>/<name>  v1.ConfigMap, v1.Secret,
//	                                  v1.PersistentVolumeClaim,
//	                                  v1.PersistentVolume, nodev1.RuntimeClass
//	object/Services/<namespace>/      v1.ServiceList
//	object/TrustBundle//<sha-256>     v1.ConfigMap with the anchors in "pem";
//	                                  the hash is of what selects them
//	token/<uid>/<seconds>/<audience>  authenticationv1.TokenRequestStatus
//
// Of a pod its spec and metadata are kept without managedFields and
// resourceVersion, and of its status what neither the runtime nor the node
// knows: the start time, the conditions of its readiness gates, and, where it
// had ended for the server already, all of it. Restarts and former ends of
// containers are in the runtime.
//
// A value of another version or that does not decode stays as it is, since a
// later version may read it; while a pod is such, no object is dropped.
//
// Secrets and tokens are on the disk. Without a key everybody who can read
// the card can read them, though no other user of the node can; with a key
// (KeyFile, Keyring, agent/store/tpmkey) the journal is sealed with AES-256-GCM,
// which is worth as much as the place where the key is. With a key, a journal
// that is not sealed, or that is older than its anchor (FileAnchor,
// tpmkey.Counter), is put aside at Open and a new one begins; Migrate accepts
// it once.
//
// # When it is written
//
// Only when something changed: what the server says anew and is the same
// costs no write. What nothing refers to any more goes with a later write.
//
// A full disk, or a journal over its limit, is no reason to keep a pod from
// running: Admit then says ErrFull, the caller runs the pod all the same and
// makes an event of the error, and the pod does not come back without network
// until a later Admit succeeds.
package offline
