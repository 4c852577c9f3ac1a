// Package v1 has the kind Greeting.
// +kubebuilder:object:generate=true
// +groupName=example.dev
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is what the kind is served under.
var GroupVersion = schema.GroupVersion{Group: "example.dev", Version: "v1"}

var schemeBuilder = runtime.NewSchemeBuilder(func(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion, &Greeting{}, &GreetingList{})
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
})

// AddToScheme makes the kind known.
var AddToScheme = schemeBuilder.AddToScheme
