package apiobjects

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/tinylet/tinylet/agent/apiserver/apiclient"
)

// kindBundle is the kind of trust anchors.
const kindBundle = "ClusterTrustBundle"

// bundleAge is how long trust anchors count, as in the kubelet
// (pkg/kubelet/clustertrustbundle).
const bundleAge = 5 * time.Minute

// ErrNoBundles says that the API server does not serve ClusterTrustBundles of
// certificates.k8s.io/v1beta1, as is its default. It is no NotFound, so that it
// is told also where a bundle is optional, as the kubelet has it.
var ErrNoBundles = errors.New("the API server does not serve ClusterTrustBundles (certificates.k8s.io/v1beta1)")

// bundleKey selects trust anchors: by one bundle's name, or those of a signer
// by labels.
type bundleKey struct {
	name           string
	signer, labels string
}

func (k bundleKey) String() string {
	if k.name != "" {
		return kindBundle + " " + k.name
	}
	return kindBundle + " of signer " + k.signer
}

// bundleOf is what a projection selects. Without a label selector it is
// nothing, with an empty one all bundles of the signer.
func bundleOf(source *v1.ClusterTrustBundleProjection) (bundleKey, error) {
	switch {
	case source.Name != nil && *source.Name != "":
		return bundleKey{name: *source.Name}, nil
	case source.SignerName == nil || *source.SignerName == "":
		return bundleKey{}, errors.New("a ClusterTrustBundle projection needs a name or a signerName")
	}
	k := bundleKey{signer: *source.SignerName}
	selector, err := metav1.LabelSelectorAsSelector(source.LabelSelector)
	if err != nil {
		return k, fmt.Errorf("%s: parse its label selector: %w", k, err)
	}
	if source.LabelSelector == nil {
		return k, notFound(key{kind: kindBundle, name: k.signer})
	}
	k.labels = selector.String()
	return k, nil
}

// TrustBundle answers the selected trust anchors in PEM, each once and in an
// order that changes only with them, as they were five minutes ago at most if
// the server can be reached. IsNotFound holds for the error if none are
// selected, errors.Is ErrNoBundles if the server has no such thing.
func (o *Objects) TrustBundle(ctx context.Context, source *v1.ClusterTrustBundleProjection) (string, error) {
	k, err := bundleOf(source)
	if err != nil {
		return "", err
	}
	return o.bundles.read(ctx, k)
}

func (o *Objects) fetchBundle(ctx context.Context, k bundleKey) (string, validity, error) {
	var list certificatesv1beta1.ClusterTrustBundleList
	var err error
	if k.name != "" {
		list.Items = make([]certificatesv1beta1.ClusterTrustBundle, 1)
		err = o.config.API.Get(ctx, apiclient.TrustBundles, "", k.name, &list.Items[0])
	} else {
		err = o.config.API.List(ctx, apiclient.TrustBundles, "", metav1.ListOptions{
			LabelSelector: k.labels,
			FieldSelector: fields.OneTermEqualSelector("spec.signerName", k.signer).String(),
		}, &list)
	}
	switch {
	case apierrors.IsNotFound(err) && (k.name == "" || apierrors.IsUnexpectedServerError(err)):
		return "", validity{}, fmt.Errorf("%s: %w", k, ErrNoBundles)
	case err != nil:
		return "", validity{}, fmt.Errorf("%s: %w", k, err)
	case len(list.Items) == 0:
		return "", validity{}, fmt.Errorf("no %s is selected: %w", k, notFound(key{kind: kindBundle, name: k.signer}))
	}
	bundles := make([]string, len(list.Items))
	for i := range list.Items {
		bundles[i] = list.Items[i].Spec.TrustBundle
	}
	return anchors(bundles), validFor(bundleAge), nil
}

// anchors are the certificates of bundles in PEM, each once and sorted.
func anchors(bundles []string) string {
	all := make(map[string]struct{})
	for _, bundle := range bundles {
		for rest := []byte(bundle); ; {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			all[string(block.Bytes)] = struct{}{}
		}
	}
	var out strings.Builder
	for _, der := range slices.Sorted(maps.Keys(all)) {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(der)}))
	}
	return out.String()
}
