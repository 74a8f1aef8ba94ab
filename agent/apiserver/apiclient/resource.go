package apiclient

import (
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	certificatesv1beta1 "k8s.io/api/certificates/v1beta1"
	coordinationv1 "k8s.io/api/coordination/v1"
	v1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	nodev1 "k8s.io/api/node/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Resource is a resource of the API with its group and version.
type Resource struct {
	group schema.GroupVersion
	name  string
}

// String returns the plural name of the resource, such as pods.
func (r Resource) String() string { return r.name }

// The resources that a node uses.
var (
	Pods                       = Resource{v1.SchemeGroupVersion, "pods"}
	Nodes                      = Resource{v1.SchemeGroupVersion, "nodes"}
	ConfigMaps                 = Resource{v1.SchemeGroupVersion, "configmaps"}
	Secrets                    = Resource{v1.SchemeGroupVersion, "secrets"}
	Services                   = Resource{v1.SchemeGroupVersion, "services"}
	ServiceAccounts            = Resource{v1.SchemeGroupVersion, "serviceaccounts"}
	PersistentVolumeClaims     = Resource{v1.SchemeGroupVersion, "persistentvolumeclaims"}
	PersistentVolumes          = Resource{v1.SchemeGroupVersion, "persistentvolumes"}
	Leases                     = Resource{coordinationv1.SchemeGroupVersion, "leases"}
	RuntimeClasses             = Resource{nodev1.SchemeGroupVersion, "runtimeclasses"}
	EndpointSlices             = Resource{discoveryv1.SchemeGroupVersion, "endpointslices"}
	CoreEvents                 = Resource{v1.SchemeGroupVersion, "events"}
	CertificateSigningRequests = Resource{certificatesv1.SchemeGroupVersion, "certificatesigningrequests"}
	ClusterTrustBundles        = Resource{certificatesv1beta1.SchemeGroupVersion, "clustertrustbundles"}
	TokenReviews               = Resource{authenticationv1.SchemeGroupVersion, "tokenreviews"}
	SubjectAccessReviews       = Resource{authorizationv1.SchemeGroupVersion, "subjectaccessreviews"}
	CSINodes                   = Resource{storageGroup, "csinodes"} // only deleted
)

// storageGroup is the group of k8s.io/api/storage/v1, of which no type is needed.
var storageGroup = schema.GroupVersion{Group: "storage.k8s.io", Version: "v1"}

// kinds holds the types of the resources, and of the objects sent to their
// subresources, by group and version.
var kinds = map[schema.GroupVersion][]runtime.Object{
	v1.SchemeGroupVersion: {
		&v1.Pod{}, &v1.PodList{}, &v1.Node{}, &v1.NodeList{},
		&v1.ConfigMap{}, &v1.ConfigMapList{}, &v1.Secret{}, &v1.SecretList{},
		&v1.Service{}, &v1.ServiceList{}, &v1.ServiceAccount{},
		&v1.PersistentVolumeClaim{}, &v1.PersistentVolumeClaimList{}, &v1.PersistentVolume{}, &v1.PersistentVolumeList{},
		&v1.Event{},
	},
	coordinationv1.SchemeGroupVersion:      {&coordinationv1.Lease{}},
	discoveryv1.SchemeGroupVersion:         {&discoveryv1.EndpointSlice{}, &discoveryv1.EndpointSliceList{}},
	nodev1.SchemeGroupVersion:              {&nodev1.RuntimeClass{}, &nodev1.RuntimeClassList{}},
	certificatesv1.SchemeGroupVersion:      {&certificatesv1.CertificateSigningRequest{}, &certificatesv1.CertificateSigningRequestList{}},
	certificatesv1beta1.SchemeGroupVersion: {&certificatesv1beta1.ClusterTrustBundle{}, &certificatesv1beta1.ClusterTrustBundleList{}},
	authenticationv1.SchemeGroupVersion:    {&authenticationv1.TokenRequest{}, &authenticationv1.TokenReview{}},
	authorizationv1.SchemeGroupVersion:     {&authorizationv1.SubjectAccessReview{}},
	storageGroup:                           {},
}

// newCodecs returns codecs of the kinds, without conversion between versions.
func newCodecs() runtime.NegotiatedSerializer {
	scheme := runtime.NewScheme()
	for group, objects := range kinds {
		scheme.AddKnownTypes(group, objects...)
		metav1.AddToGroupVersion(scheme, group)
	}
	return serializer.NewCodecFactory(scheme).WithoutConversion()
}
